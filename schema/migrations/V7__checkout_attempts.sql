-- The attempts of each checkout session at the payment processor.
CREATE TABLE ledger.checkout_attempt (
    checkout_session_id text COLLATE "C" PRIMARY KEY,
    attempts            integer     NOT NULL,
    first_at            timestamptz NOT NULL
);
CREATE INDEX checkout_attempt_by_age ON ledger.checkout_attempt (first_at);
GRANT SELECT, INSERT, UPDATE, DELETE ON ledger.checkout_attempt TO farthing_gateway;
