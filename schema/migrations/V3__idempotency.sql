-- The uses of idempotency keys, for 24 hours, with the answers given. Ids are keyed hashes and answers are sealed under
-- the server key, so nothing here can be read without it. Neither part of the log nor folded from it.
CREATE TABLE ledger.idempotency (
    partition   smallint    NOT NULL,
    id          text COLLATE "C" NOT NULL,
    fingerprint text        NOT NULL,
    request_id  text COLLATE "C",
    answer      bytea,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, id),
    CHECK (request_id IS NOT NULL OR answer IS NOT NULL)
);
CREATE INDEX idempotency_by_age ON ledger.idempotency (created_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON ledger.idempotency TO farthing_gateway;
