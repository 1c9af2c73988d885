-- The append-only log, its head, the states folded from it, and the tables beside it.

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

-- One row. The holder of its lock is the only writer. The epoch is incremented when an append without an answer is
-- given up, so that the append writes nothing if it arrives later.
CREATE TABLE ledger.head (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    position bigint  NOT NULL,
    hash     bytea   NOT NULL,
    epoch    bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO ledger.head (position, hash) VALUES (0, decode(repeat('00', 32), 'hex'));

-- The states folded from the log, one row per state; the audit recomputes them.
CREATE TABLE ledger.state (
    kind text NOT NULL,
    id   text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

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

-- Personal data, outside the log so that it can be erased; events carry only the customer's id.
CREATE TABLE personal.customer (
    customer_id text PRIMARY KEY,
    first_name  text,
    last_name   text,
    email       text,
    phone       text
);
