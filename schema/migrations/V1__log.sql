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

-- One row. Whoever holds its lock is the only writer of that moment. The epoch moves when an append is given up
-- without an answer, so that it writes nothing should it arrive after all.
CREATE TABLE ledger.head (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    position bigint  NOT NULL,
    hash     bytea   NOT NULL,
    epoch    bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO ledger.head (position, hash) VALUES (0, decode(repeat('00', 32), 'hex'));

-- A cache of the log, one row per thing; the audit recomputes it.
CREATE TABLE ledger.state (
    kind text NOT NULL,
    id   text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

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
