-- The append-only log, its head, the states folded from it, and what stands beside it.

CREATE SCHEMA ledger;
CREATE SCHEMA personal;

CREATE TABLE ledger.events (
    position       bigint      PRIMARY KEY,
    kind           text        NOT NULL,
    schema_version integer     NOT NULL,
    key            text        NOT NULL UNIQUE,
    merchant_id    text        NOT NULL,
    occurred_at    timestamptz NOT NULL,
    recorded_at    timestamptz NOT NULL,
    body           json        NOT NULL,
    metadata       json        NOT NULL,
    hash           bytea       NOT NULL CHECK (length(hash) = 32)
);
COMMENT ON TABLE ledger.events IS 'Append-only: never updated, deleted or truncated. position is gap-free in commit order.';

CREATE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger.events is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER append_only_rows BEFORE UPDATE OR DELETE ON ledger.events
    FOR EACH ROW EXECUTE FUNCTION ledger.refuse_change();
CREATE TRIGGER append_only_statements BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.events
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();
ALTER TABLE ledger.events ENABLE ALWAYS TRIGGER append_only_rows;
ALTER TABLE ledger.events ENABLE ALWAYS TRIGGER append_only_statements;

-- One row. Whoever holds its lock is the only writer of that moment.
CREATE TABLE ledger.head (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    position bigint  NOT NULL,
    hash     bytea   NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO ledger.head (position, hash) VALUES (0, decode(repeat('00', 32), 'hex'));

-- A cache of the log, one row per thing; the audit recomputes it.
CREATE TABLE ledger.state (
    kind text NOT NULL,
    id   text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Appends a decided batch if the head still is where it was decided at. Answers the head's position: another
-- one than expected_position means that another writer was faster and nothing was written.
CREATE FUNCTION ledger.append(
    expected_position bigint, new_hash bytea, recorded timestamptz, event_metadata text,
    kinds text[], schema_versions integer[], keys text[], merchants text[], occurred timestamptz[],
    bodies text[], hashes bytea[],
    put_kinds text[], put_ids text[], put_bodies text[],
    gone_kinds text[], gone_ids text[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    actual bigint;
BEGIN
    SELECT position INTO STRICT actual FROM ledger.head FOR UPDATE;
    IF actual <> expected_position OR cardinality(keys) = 0 THEN
        RETURN actual;
    END IF;
    INSERT INTO ledger.events
        (position, kind, schema_version, key, merchant_id, occurred_at, recorded_at, body, metadata, hash)
    SELECT expected_position + n, kind, schema_version, key, merchant_id, occurred_at, recorded,
           body::json, event_metadata::json, hash
    FROM unnest(kinds, schema_versions, keys, merchants, occurred, bodies, hashes) WITH ORDINALITY
        AS e(kind, schema_version, key, merchant_id, occurred_at, body, hash, n);
    INSERT INTO ledger.state (kind, id, body)
    SELECT kind, id, body FROM unnest(put_kinds, put_ids, put_bodies) AS s(kind, id, body)
    ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body;
    IF cardinality(gone_ids) > 0 THEN
        DELETE FROM ledger.state AS s USING unnest(gone_kinds, gone_ids) AS g(kind, id)
        WHERE s.kind = g.kind AND s.id = g.id;
    END IF;
    UPDATE ledger.head SET position = expected_position + cardinality(keys), hash = new_hash;
    RETURN actual;
END $$;

-- A running gateway beats here; a sweeper ends the requests of one that stopped.
CREATE TABLE ledger.gateway_lease (
    gateway_id text   PRIMARY KEY,
    beat       bigint NOT NULL
);

-- What this instance is: set once by `farthing migrate`, with the key that hashes keys and derives secrets.
CREATE TABLE ledger.instance (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    mode       text    NOT NULL CHECK (mode IN ('live', 'test')),
    server_key text    NOT NULL
);

-- Personal data, outside the log so that it can be erased; events carry only the customer's id.
CREATE TABLE personal.customer (
    customer_id text PRIMARY KEY,
    first_name  text,
    last_name   text,
    email       text,
    phone       text
);
