-- Archives: ranges of the log that were moved to files. A range leaves ledger.batches only after a row here covers it, and
-- that row is taken only if it agrees with the log and nothing that works every day needs the range any more.

-- A row per archived range. The hash before its first event, and that of its last one, tie the file to the chain.
CREATE TABLE ledger.archives (
    partition         smallint    NOT NULL,
    number            integer     NOT NULL CHECK (number > 0),
    first_position    bigint      NOT NULL CHECK (first_position > 0),
    last_position     bigint      NOT NULL CHECK (last_position >= first_position),
    batches           integer     NOT NULL CHECK (batches > 0),
    previous_hash     bytea       NOT NULL CHECK (length(previous_hash) = 32),
    last_hash         bytea       NOT NULL CHECK (length(last_hash) = 32),
    first_recorded_at timestamptz NOT NULL,
    last_recorded_at  timestamptz NOT NULL,
    location          text        NOT NULL,
    object            text        NOT NULL,
    bytes             bigint      NOT NULL,
    text_bytes        bigint      NOT NULL,
    sha256            bytea       NOT NULL CHECK (length(sha256) = 32),
    archived_at       timestamptz NOT NULL DEFAULT now(),
    archived_by       text        NOT NULL DEFAULT session_user,
    PRIMARY KEY (partition, number)
);
CREATE INDEX archives_last_position ON ledger.archives (partition, last_position);
COMMENT ON TABLE ledger.archives IS 'Append-only. A range that was restored has a row in ledger.archive_restores.';
COMMENT ON COLUMN ledger.archives.number IS 'Counts the archives of a partition.';
COMMENT ON COLUMN ledger.archives.location IS 'Where the object was written, for people. Readers use the location that they are given.';
COMMENT ON COLUMN ledger.archives.text_bytes IS 'The size of the object without its compression.';

-- The archives whose range was loaded back into ledger.batches, whole.
CREATE TABLE ledger.archive_restores (
    partition   smallint    NOT NULL,
    number      integer     NOT NULL,
    restored_at timestamptz NOT NULL DEFAULT now(),
    restored_by text        NOT NULL DEFAULT session_user,
    PRIMARY KEY (partition, number)
);
COMMENT ON TABLE ledger.archive_restores IS 'Append-only.';

-- The ranges that are archived now. Those of a partition begin with its first event and follow each other.
CREATE VIEW ledger.archived AS
SELECT a.partition, a.number, a.first_position, a.last_position, a.batches, a.previous_hash, a.last_hash,
       a.first_recorded_at, a.last_recorded_at, a.location, a.object, a.bytes, a.text_bytes, a.sha256, a.archived_at,
       a.archived_by
FROM ledger.archives AS a
WHERE NOT EXISTS (
    SELECT FROM ledger.archive_restores AS r WHERE r.partition = a.partition AND r.number = a.number);

-- The position up to which each part of the system has read a partition, and needs none of its events any more: the last
-- record batch stays, for the head; each generation of states folds what follows its checkpoint, whose event its
-- builder compares; read models and the outbox go on after theirs; and a delivery can be sent again while the outbox has it.
CREATE FUNCTION ledger.archive_limits(of_partition smallint) RETURNS TABLE (what text, reached bigint)
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    model record;
BEGIN
    RETURN QUERY SELECT 'the last record batch stays'::text, coalesce((
        SELECT b.first_position - 1 FROM ledger.batches AS b WHERE b.partition = of_partition
        ORDER BY b.first_position DESC LIMIT 1), 0);
    RETURN QUERY SELECT 'stored states'::text, greatest(coalesce(min(c.position), 0) - 1, 0)
        FROM ledger.checkpoints AS c WHERE c.partition = of_partition;
    RETURN QUERY SELECT 'webhook outbox'::text, coalesce(min(c.position), 0)
        FROM webhooks.cursor AS c WHERE c.partition = of_partition;
    RETURN QUERY SELECT 'deliveries of ' || w.webhook_id, d.position - 1
        FROM webhooks.webhook AS w
        CROSS JOIN LATERAL (
            SELECT l.position FROM webhooks.delivery AS l
            WHERE l.partition = w.partition AND l.webhook_id = w.webhook_id ORDER BY l.position LIMIT 1) AS d
        WHERE w.partition = of_partition;
    FOR model IN SELECT m.name, m.version, m.schema_name FROM ledger.read_models AS m ORDER BY m.name, m.version LOOP
        what := format('read model %s, version %s', model.name, model.version);
        EXECUTE format('SELECT coalesce(min(c.position), 0) FROM %I.checkpoint AS c WHERE c.partition = $1',
            model.schema_name) INTO reached USING of_partition;
        RETURN NEXT;
    END LOOP;
END $$;

-- Refuses a row that does not follow the archives before it, differs from the log, or reaches beyond a limit.
CREATE FUNCTION ledger.check_archive() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before_position bigint := 0;
    before_hash     bytea  := decode(repeat('00', 32), 'hex');
    next_number     integer;
    stored          record;
    limited         record;
BEGIN
    SELECT coalesce(max(a.number), 0) + 1 INTO next_number FROM ledger.archives AS a WHERE a.partition = NEW.partition;
    SELECT a.last_position, a.last_hash INTO stored FROM ledger.archived AS a WHERE a.partition = NEW.partition
    ORDER BY a.last_position DESC LIMIT 1;
    IF FOUND THEN
        before_position := stored.last_position;
        before_hash := stored.last_hash;
    END IF;
    IF NEW.number <> next_number OR NEW.first_position <> before_position + 1 OR NEW.previous_hash <> before_hash THEN
        RAISE EXCEPTION 'the archive does not follow the one before it in partition %', NEW.partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    SELECT sum(b.count) AS events, count(*) AS batches INTO stored FROM ledger.batches AS b
    WHERE b.partition = NEW.partition AND b.first_position BETWEEN NEW.first_position AND NEW.last_position;
    IF stored.events IS DISTINCT FROM NEW.last_position - NEW.first_position + 1 OR stored.batches <> NEW.batches THEN
        RAISE EXCEPTION 'the archive has other events than partition % of the log', NEW.partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    PERFORM FROM ledger.batches AS b
    WHERE b.partition = NEW.partition AND b.first_position = NEW.first_position
        AND b.recorded_at = NEW.first_recorded_at;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the archive begins within a record batch of partition %', NEW.partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    PERFORM FROM (
        SELECT c.first_position, c.count, c.recorded_at, c.hashes FROM ledger.batches AS c
        WHERE c.partition = NEW.partition AND c.first_position <= NEW.last_position
        ORDER BY c.first_position DESC LIMIT 1) AS b
    WHERE b.first_position + b.count - 1 = NEW.last_position AND b.recorded_at = NEW.last_recorded_at
        AND substring(b.hashes FROM 32 * b.count - 31 FOR 32) = NEW.last_hash;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the archive ends with another event than partition % of the log', NEW.partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    SELECT l.what, l.reached INTO limited FROM ledger.archive_limits(NEW.partition) AS l ORDER BY l.reached LIMIT 1;
    IF NEW.last_position > limited.reached THEN
        RAISE EXCEPTION 'position % of partition % is still needed: % (up to %)', NEW.last_position, NEW.partition,
            limited.what, limited.reached USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

-- Refuses the restore of a range while a later one is archived, or before all of it is back.
CREATE FUNCTION ledger.check_restore() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    restored record;
    stored   record;
BEGIN
    SELECT a.number, a.first_position, a.last_position, a.batches, a.last_hash INTO restored FROM ledger.archived AS a
    WHERE a.partition = NEW.partition ORDER BY a.last_position DESC LIMIT 1;
    IF restored.number IS DISTINCT FROM NEW.number THEN
        RAISE EXCEPTION 'archive % of partition % is not the last one', NEW.number, NEW.partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    SELECT sum(b.count) AS events, count(*) AS batches,
        (array_agg(substring(b.hashes FROM 32 * b.count - 31 FOR 32) ORDER BY b.first_position DESC))[1] AS last_hash
    INTO stored FROM ledger.batches AS b
    WHERE b.partition = NEW.partition AND b.first_position BETWEEN restored.first_position AND restored.last_position;
    IF stored.events IS DISTINCT FROM restored.last_position - restored.first_position + 1
        OR stored.batches <> restored.batches OR stored.last_hash <> restored.last_hash THEN
        RAISE EXCEPTION 'archive % of partition % is not back in the log', NEW.number, NEW.partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION ledger.refuse_change_of_archives() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the archives are append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER check_archive BEFORE INSERT ON ledger.archives
    FOR EACH ROW EXECUTE FUNCTION ledger.check_archive();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.archives
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change_of_archives();
CREATE TRIGGER check_restore BEFORE INSERT ON ledger.archive_restores
    FOR EACH ROW EXECUTE FUNCTION ledger.check_restore();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.archive_restores
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change_of_archives();
ALTER TABLE ledger.archives ENABLE ALWAYS TRIGGER check_archive;
ALTER TABLE ledger.archives ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE ledger.archive_restores ENABLE ALWAYS TRIGGER check_restore;
ALTER TABLE ledger.archive_restores ENABLE ALWAYS TRIGGER append_only;

-- The log stays append-only. A row may be deleted only by ledger.delete_archived, and only if it is archived.
CREATE OR REPLACE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('farthing.deletes_archived', true) = 'yes' THEN
        IF TG_LEVEL = 'STATEMENT' THEN
            RETURN NULL;
        END IF;
        PERFORM FROM ledger.archived AS a
        WHERE a.partition = OLD.partition AND a.first_position <= OLD.first_position
            AND a.last_position >= OLD.first_position + OLD.count - 1;
        IF FOUND THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'ledger.batches is append-only: position % of partition % is not archived',
            OLD.first_position, OLD.partition USING ERRCODE = 'restrict_violation';
    END IF;
    RAISE EXCEPTION 'ledger.batches is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;

-- Deletes at most `most` of the first record batches of an archived range. Returns how many it deleted.
CREATE FUNCTION ledger.delete_archived(of_partition smallint, of_number integer, most integer) RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE
    archive record;
    limited record;
    deleted bigint;
BEGIN
    SELECT a.first_position, a.last_position INTO archive FROM ledger.archived AS a
    WHERE a.partition = of_partition AND a.number = of_number;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'archive % of partition % does not exist', of_number, of_partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    SELECT l.what, l.reached INTO limited FROM ledger.archive_limits(of_partition) AS l ORDER BY l.reached LIMIT 1;
    IF archive.last_position > limited.reached THEN
        RAISE EXCEPTION 'position % of partition % is still needed: % (up to %)', archive.last_position, of_partition,
            limited.what, limited.reached USING ERRCODE = 'restrict_violation';
    END IF;
    PERFORM set_config('farthing.deletes_archived', 'yes', true);
    DELETE FROM ledger.batches AS b WHERE b.partition = of_partition AND b.first_position IN (
        SELECT o.first_position FROM ledger.batches AS o
        WHERE o.partition = of_partition AND o.first_position BETWEEN archive.first_position AND archive.last_position
        ORDER BY o.first_position LIMIT most);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    PERFORM set_config('farthing.deletes_archived', 'no', true);
    RETURN deleted;
END $$;

-- Whether a record batch may be added at these positions: they are not archived any more, or ledger.restore_archived loads them.
-- Whoever can set the parameter also needs the right to record a restore, which gateways do not have.
CREATE FUNCTION ledger.may_add(of_partition smallint, first bigint, events integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM ledger.archived AS a WHERE a.partition = of_partition AND a.last_position >= first;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    IF current_setting('farthing.restores_archived', true) = 'yes'
        AND has_table_privilege('ledger.archive_restores', 'INSERT') THEN
        PERFORM FROM ledger.archived AS a
        WHERE a.partition = of_partition AND a.first_position <= first AND a.last_position >= first + events - 1;
        RETURN FOUND;
    END IF;
    RETURN false;
END $$;

-- Refuses a record batch at archived positions. They begin with the first one, so an append, which follows them all, costs one
-- look-up in the index of the archives. Its operators are named, and the search path of ledger.may_add is fixed: no operator of
-- another schema decides. A fixed search path here would double the cost of each append's check.
CREATE FUNCTION ledger.refuse_archived() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    SELECT a.last_position INTO last FROM ledger.archives AS a WHERE a.partition OPERATOR(pg_catalog.=) NEW.partition
    ORDER BY a.last_position DESC LIMIT 1;
    IF last IS NULL OR NEW.first_position OPERATOR(pg_catalog.>) last THEN
        RETURN NEW;
    END IF;
    IF ledger.may_add(NEW.partition, NEW.first_position, NEW.count) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'position % of partition % is archived', NEW.first_position, NEW.partition
        USING ERRCODE = 'restrict_violation';
END $$;

-- Citus would copy the trigger to its nodes, where it cannot read the archives. A log there has none.
DO $$
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
        CREATE TRIGGER not_archived BEFORE INSERT ON ledger.batches
            FOR EACH ROW EXECUTE FUNCTION ledger.refuse_archived();
        ALTER TABLE ledger.batches ENABLE ALWAYS TRIGGER not_archived;
    END IF;
END $$;

-- Loads record batches of the newest archived range of a partition back. Those that are in the table stay as they are.
-- Returns how many it added.
CREATE FUNCTION ledger.restore_archived(
    of_partition smallint, of_number integer, first_positions bigint[], counts integer[], times timestamptz[],
    writers text[], texts bytea[], chains bytea[]
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    archive record;
    added   bigint;
BEGIN
    SELECT a.number, a.first_position, a.last_position INTO archive FROM ledger.archived AS a
    WHERE a.partition = of_partition ORDER BY a.last_position DESC LIMIT 1;
    IF archive.number IS DISTINCT FROM of_number THEN
        RAISE EXCEPTION 'archive % of partition % is not the last one', of_number, of_partition
            USING ERRCODE = 'restrict_violation';
    END IF;
    PERFORM set_config('farthing.restores_archived', 'yes', true);
    INSERT INTO ledger.batches (partition, first_position, count, recorded_at, writer, events, hashes)
    SELECT of_partition, b.first_position, b.count, b.recorded_at, b.writer, b.events, b.hashes
    FROM unnest(first_positions, counts, times, writers, texts, chains)
        AS b(first_position, count, recorded_at, writer, events, hashes)
    WHERE b.first_position >= archive.first_position AND b.first_position + b.count - 1 <= archive.last_position
    ON CONFLICT (partition, first_position) DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    PERFORM set_config('farthing.restores_archived', 'no', true);
    RETURN added;
END $$;

GRANT SELECT ON ledger.archives, ledger.archive_restores, ledger.archived TO farthing_gateway, farthing_projector;
