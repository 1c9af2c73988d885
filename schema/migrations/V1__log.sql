-- The append-only log, its heads, the states folded from it, and the tables beside it.

CREATE SCHEMA ledger;
CREATE SCHEMA personal;

-- A row per commit and partition of the log. A compressed batch of up to about a hundred events stays in its row, which
-- saves the rows and the index of a second table. Ids and keys are compared byte by byte, whatever the collation of the
-- database: faster, and the same on every server.
CREATE TABLE ledger.batches (
    partition      smallint    NOT NULL,
    first_position bigint      NOT NULL CHECK (first_position > 0),
    count          integer     NOT NULL CHECK (count > 0),
    recorded_at    timestamptz NOT NULL,
    writer         text        NOT NULL,
    events         bytea       NOT NULL,
    hashes         bytea       NOT NULL CHECK (length(hashes) = 32 * count),
    PRIMARY KEY (partition, first_position)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_freeze_min_age = 0, toast_tuple_target = 4080);
COMMENT ON TABLE ledger.batches IS 'Append-only: never updated, deleted or truncated. Positions are gap-free in commit order.';
COMMENT ON COLUMN ledger.batches.events IS 'An event per line, as JSON in UTF-8. A hash covers the exact bytes of its line.';
COMMENT ON COLUMN ledger.batches.hashes IS 'The hash of each event in the chain, 32 bytes each.';

-- A server that was built without lz4 compresses by its default method.
DO $$
BEGIN
    ALTER TABLE ledger.batches ALTER COLUMN events SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;

CREATE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger.batches is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER append_only_rows BEFORE UPDATE OR DELETE ON ledger.batches
    FOR EACH ROW EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER append_only_statements BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.batches
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_rows;
ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER append_only_statements;

-- A row per event, for people. The program reads the batches.
CREATE VIEW ledger.events AS
SELECT b.partition,
       b.first_position + line.number - 1 AS position,
       event.kind,
       event.version AS schema_version,
       event.key,
       event.merchant AS merchant_id,
       event.occurred_at,
       b.recorded_at,
       event.body,
       b.writer,
       substring(b.hashes FROM (32 * line.number - 31)::integer FOR 32) AS hash
FROM ledger.batches AS b
CROSS JOIN LATERAL string_to_table(convert_from(b.events, 'UTF8'), E'\n') WITH ORDINALITY AS line(text, number)
CROSS JOIN LATERAL json_to_record(line.text::json)
    AS event(kind text, version integer, key text, merchant text, occurred_at timestamptz, body json);

-- One row per partition; `farthing migrate` fixes their number. An append moves it. The epoch is raised when another
-- gateway takes the partition over, and when an append without an answer is given up, so that what arrives later writes
-- nothing. The shape is that of the newest program that has led the partition: an older one appends nothing any more.
-- The generation is that of the states that the leader keeps.
CREATE TABLE ledger.heads (
    partition  smallint PRIMARY KEY,
    position   bigint   NOT NULL DEFAULT 0,
    hash       bytea    NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    epoch      bigint   NOT NULL DEFAULT 0,
    shape      bigint   NOT NULL,
    generation smallint NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- The position up to which the states of each partition and generation are stored, and the epoch of the leader that
-- stores them. The epoch is below zero while a gateway builds the generation beside the live one; once it has reached the
-- head, the generation is built, and a leader can go on with it.
CREATE TABLE ledger.checkpoints (
    partition  smallint NOT NULL,
    generation smallint NOT NULL,
    position   bigint   NOT NULL DEFAULT 0,
    epoch      bigint   NOT NULL DEFAULT 0,
    built      boolean  NOT NULL DEFAULT true,
    PRIMARY KEY (partition, generation)
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- The gateway that leads each partition until its lease expires, by this server's clock, with its address for the commands
-- of other gateways, and whether it delivers webhooks. The term counts the claims of the partition.
CREATE TABLE ledger.leases (
    partition  smallint    PRIMARY KEY,
    gateway    text,
    address    text,
    term       bigint      NOT NULL DEFAULT 0,
    delivers   boolean     NOT NULL DEFAULT false,
    expires_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- The gateways that share the partitions, each with the shape of its states and the partitions that it could not lead
-- lately. Those of the newest shape share alone.
CREATE TABLE ledger.gateways (
    gateway    text PRIMARY KEY,
    shape      smallint    NOT NULL,
    expires_at timestamptz NOT NULL,
    avoids     smallint[]  NOT NULL DEFAULT '{}'
);

-- The partitions of what is looked up before its merchant is known: hashes and ids of keys, checkout sessions. Written
-- in the append that creates it, and never changed: whether it still exists, its state says.
CREATE TABLE ledger.directory (
    kind      text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL,
    partition smallint NOT NULL,
    PRIMARY KEY (kind, id)
);

-- The positions of facts by their keys, which keeps a fact from being recorded twice. The facts of calls are not here:
-- there are many. The id of a call is made for one opening, and its open state lets it end only once.
CREATE TABLE ledger.facts (
    partition smallint NOT NULL,
    key       text COLLATE "C" NOT NULL,
    position  bigint   NOT NULL,
    PRIMARY KEY (partition, key)
);

-- Typed columns of the states that SQL looks for. The text is JSON written by this program: every quote within a string
-- is escaped, so no value that a merchant chooses can match as a member.
CREATE FUNCTION ledger.member(body text, pattern text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(body FROM pattern);

-- The states folded from the log, one row per state, as of the checkpoint of their partition and generation; the audit
-- recomputes them. The shape is that of the program that wrote the row; a newer one of the same generation reads it too.
-- An update of a state that is not indexed, or whose typed columns stay the same, touches no index.
CREATE TABLE ledger.state (
    partition  smallint NOT NULL,
    generation smallint NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    shape      smallint NOT NULL,
    body       text NOT NULL,
    -- When a subscription is due, in milliseconds of Unix time.
    due_ms bigint GENERATED ALWAYS AS (
        CASE WHEN kind = 'subscription' THEN ledger.member(body, '"due_ms":(\d+)')::bigint END) STORED,
    -- The merchant of a subscription.
    merchant_id text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN kind = 'subscription' THEN ledger.member(body, '"merchant_id":"(mer_[0-9A-Z]{26})"') END) STORED,
    -- The lead of a merchant's clock over the machine's, in seconds. Test mode only.
    ahead_seconds bigint GENERATED ALWAYS AS (
        CASE WHEN kind = 'merchant' THEN ledger.member(body, '"clock_ahead_seconds":(\d+)')::bigint END) STORED,
    -- The gateway that forwards an open request.
    gateway_id text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN kind = 'request' THEN ledger.member(body, '"opened":\{"request_id":"req_[0-9A-Z]{26}","gateway_id":"(gw_[0-9A-Z]{26})"') END) STORED,
    PRIMARY KEY (partition, generation, kind, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX subscription_due ON ledger.state (partition, generation, due_ms) WHERE kind = 'subscription';
CREATE INDEX subscription_of_merchant ON ledger.state (partition, generation, merchant_id, due_ms) WHERE kind = 'subscription';
CREATE INDEX clock_ahead ON ledger.state (partition, generation, ahead_seconds) WHERE kind = 'merchant' AND ahead_seconds > 0;
CREATE INDEX request_of_gateway ON ledger.state (partition, generation, gateway_id, id) WHERE kind = 'request';

-- Personal data, outside the log so that it can be erased; events carry only the customer's id.
CREATE TABLE personal.customer (
    partition   smallint NOT NULL,
    customer_id text COLLATE "C" NOT NULL,
    first_name  text,
    last_name   text,
    email       text,
    phone       text,
    PRIMARY KEY (partition, customer_id)
);

-- The uses of idempotency keys, for 24 hours, with the answers given. Ids are keyed hashes and answers are sealed under
-- the server key, so nothing here can be read without it. Neither part of the log nor folded from it.
CREATE TABLE ledger.idempotency (
    partition   smallint NOT NULL,
    id          text COLLATE "C" NOT NULL,
    fingerprint text        NOT NULL,
    request_id  text COLLATE "C",
    answer      bytea,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, id),
    CHECK (request_id IS NOT NULL OR answer IS NOT NULL)
);
CREATE INDEX idempotency_by_age ON ledger.idempotency (partition, created_at);

-- Makes a gateway that holds the lease of a partition its leader: raises the epoch, which fences out every append and
-- every checkpoint of an earlier leader, and with the first leader of a newer program the shape and the generation.
-- Returns no row if the lease is another gateway's. If the partition belongs to a newer program, or the generation is
-- not built, it changes nothing, and stored_position is null.
CREATE FUNCTION ledger.lead(of_partition smallint, by_gateway text, of_shape bigint, of_generation smallint)
    RETURNS TABLE (head_position bigint, head_hash bytea, head_epoch bigint, head_shape bigint, stored_position bigint)
    LANGUAGE plpgsql AS $$
BEGIN
    SELECT h.position, h.hash, h.epoch + 1, h.shape INTO head_position, head_hash, head_epoch, head_shape
    FROM ledger.heads AS h WHERE h.partition = of_partition FOR UPDATE;
    -- The lease is read after the head is locked: a gateway that takes the lease later locks the head later.
    PERFORM FROM ledger.leases AS l WHERE l.partition = of_partition AND l.gateway = by_gateway;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE ledger.checkpoints AS c SET epoch = head_epoch
    WHERE c.partition = of_partition AND c.generation = of_generation AND c.built AND head_shape <= of_shape
    RETURNING c.position INTO stored_position;
    IF stored_position IS NOT NULL THEN
        UPDATE ledger.heads AS h SET epoch = head_epoch, shape = of_shape, generation = of_generation
        WHERE h.partition = of_partition;
    END IF;
    RETURN NEXT;
END $$;

-- Begins to store the states of a generation that is not live yet, or goes on with it. Fences out an earlier builder by
-- an epoch that no leader has. Returns no row if the generation is live, or older.
CREATE FUNCTION ledger.build_states(of_partition smallint, of_generation smallint)
    RETURNS TABLE (stored_position bigint, build_epoch bigint)
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM ledger.heads AS h WHERE h.partition = of_partition AND h.generation < of_generation FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO ledger.checkpoints AS c (partition, generation, epoch, built)
    VALUES (of_partition, of_generation, -1, false)
    ON CONFLICT (partition, generation) DO UPDATE SET epoch = least(c.epoch, 0) - 1
    RETURNING c.position, c.epoch INTO stored_position, build_epoch;
    RETURN NEXT;
END $$;

-- Whether the event with a hash is the first of the batch at a position. If it is not, its append is fenced out: it
-- writes nothing if it arrives later.
CREATE FUNCTION ledger.resolve(of_partition smallint, at_position bigint, of_hash bytea, of_epoch bigint)
    RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM ledger.heads AS h WHERE h.partition = of_partition FOR UPDATE;
    PERFORM FROM ledger.batches AS b
    WHERE b.partition = of_partition AND b.first_position = at_position AND substring(b.hashes FROM 1 FOR 32) = of_hash;
    IF FOUND THEN
        RETURN true;
    END IF;
    UPDATE ledger.heads AS h SET epoch = epoch + 1 WHERE h.partition = of_partition AND h.epoch = of_epoch;
    RETURN false;
END $$;

-- Stores the states that changed since the last checkpoint of a generation, as they are at a position. Returns whether
-- it did; if not, another leader or builder has taken over, and nothing is written.
CREATE FUNCTION ledger.store_states(
    of_partition smallint, of_generation smallint, of_shape smallint, of_epoch bigint, at_position bigint,
    put_kinds text[], put_ids text[], put_bodies text[], deleted_kinds text[], deleted_ids text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger.checkpoints AS c SET position = at_position
    WHERE c.partition = of_partition AND c.generation = of_generation AND c.epoch = of_epoch
        AND c.position <= at_position;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO ledger.state (partition, generation, kind, id, shape, body)
    SELECT of_partition, of_generation, s.kind, s.id, of_shape, s.body
    FROM unnest(put_kinds, put_ids, put_bodies) AS s(kind, id, body)
    ON CONFLICT (partition, generation, kind, id) DO UPDATE SET shape = excluded.shape, body = excluded.body;
    DELETE FROM ledger.state AS s USING unnest(deleted_kinds, deleted_ids) AS d(kind, id)
    WHERE s.partition = of_partition AND s.generation = of_generation AND s.kind = d.kind AND s.id = d.id;
    RETURN true;
END $$;

-- Appends a batch if the head of its partition is at the expected position, epoch and shape. Returns whether it was; if
-- not, nothing is written. It locks the head first. A batch without events records changes of claims alone.
-- `personal_changes` is null or an array of changes of personal data in their order: each erases all of a customer's, or
-- writes the parts that it names. `claim_changes` is null or an object of the claims that are put, answered and
-- released, with their answers in hexadecimal digits.
CREATE FUNCTION ledger.append(
    of_partition smallint, expected_position bigint, expected_epoch bigint, expected_shape bigint,
    events_count integer, recorded timestamptz, by_writer text, lines bytea, chain bytea,
    fact_keys text[], fact_positions bigint[], directory_kinds text[], directory_ids text[],
    personal_changes json, claim_changes json
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    change record;
BEGIN
    UPDATE ledger.heads
    SET position = expected_position + events_count,
        hash = CASE WHEN events_count > 0 THEN substring(chain FROM 32 * events_count - 31 FOR 32) ELSE hash END
    WHERE partition = of_partition AND position = expected_position AND epoch = expected_epoch
        AND shape = expected_shape;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF events_count > 0 THEN
        INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
        VALUES (of_partition, expected_position + 1, events_count, recorded, by_writer, lines, chain);
    END IF;
    IF cardinality(fact_keys) > 0 THEN
        INSERT INTO ledger.facts (partition, key, position)
        SELECT of_partition, f.key, f.position FROM unnest(fact_keys, fact_positions) AS f(key, position);
    END IF;
    IF cardinality(directory_ids) > 0 THEN
        INSERT INTO ledger.directory (kind, id, partition)
        SELECT d.kind, d.id, of_partition FROM unnest(directory_kinds, directory_ids) AS d(kind, id)
        ON CONFLICT (kind, id) DO NOTHING;
    END IF;
    IF personal_changes IS NOT NULL THEN
        FOR change IN SELECT * FROM json_to_recordset(personal_changes) AS c(
            customer_id text, erase boolean, parts text[],
            first_name text, last_name text, email text, phone text)
        LOOP
            IF change.erase THEN
                DELETE FROM personal.customer AS p
                WHERE p.partition = of_partition AND p.customer_id = change.customer_id;
            ELSE
                INSERT INTO personal.customer AS p (partition, customer_id, first_name, last_name, email, phone)
                VALUES (of_partition, change.customer_id, change.first_name, change.last_name, change.email,
                    change.phone)
                ON CONFLICT (partition, customer_id) DO UPDATE SET
                    first_name = CASE WHEN 'name' = ANY(change.parts) THEN excluded.first_name ELSE p.first_name END,
                    last_name = CASE WHEN 'name' = ANY(change.parts) THEN excluded.last_name ELSE p.last_name END,
                    email = CASE WHEN 'email' = ANY(change.parts) THEN excluded.email ELSE p.email END,
                    phone = CASE WHEN 'phone' = ANY(change.parts) THEN excluded.phone ELSE p.phone END;
            END IF;
        END LOOP;
    END IF;
    IF claim_changes IS NOT NULL THEN
        INSERT INTO ledger.idempotency AS i (partition, id, fingerprint, request_id, answer)
        SELECT of_partition, c.id, c.fingerprint, c.request_id, decode(c.answer, 'hex')
        FROM json_to_recordset(claim_changes -> 'put') AS c(id text, fingerprint text, request_id text, answer text)
        ON CONFLICT (partition, id) DO UPDATE SET fingerprint = excluded.fingerprint,
            request_id = excluded.request_id, answer = excluded.answer, created_at = excluded.created_at;
        UPDATE ledger.idempotency AS i SET answer = decode(c.answer, 'hex')
        FROM json_to_recordset(claim_changes -> 'answered') AS c(id text, request_id text, answer text)
        WHERE i.partition = of_partition AND i.id = c.id AND i.request_id = c.request_id;
        DELETE FROM ledger.idempotency AS i
        USING json_to_recordset(claim_changes -> 'released') AS c(id text, request_id text)
        WHERE i.partition = of_partition AND i.id = c.id AND i.request_id = c.request_id;
    END IF;
    RETURN true;
END $$;

-- The heartbeat of each running gateway (beat). The sweeper ends the requests of a gateway whose heartbeat stopped.
CREATE TABLE ledger.gateway_lease (
    gateway_id text   PRIMARY KEY,
    beat       bigint NOT NULL
);

-- The instance's mode, and its server key, which hashes keys and derives secrets. Set once by `farthing migrate`.
CREATE TABLE ledger.instance (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    mode       text    NOT NULL CHECK (mode IN ('live', 'test')),
    server_key text    NOT NULL
);
