-- The attempts of each checkout session at the payment processor.
CREATE TABLE ledger.checkout_attempt (
    partition           smallint    NOT NULL,
    checkout_session_id text COLLATE "C" NOT NULL,
    attempts            integer     NOT NULL,
    first_at            timestamptz NOT NULL,
    PRIMARY KEY (partition, checkout_session_id)
);
CREATE INDEX checkout_attempt_by_age ON ledger.checkout_attempt (partition, first_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON ledger.checkout_attempt TO farthing_gateway;
