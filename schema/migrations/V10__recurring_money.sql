-- The indexes of the subscription scheduler on the states, and the journal of the built-in test processor.

-- When a subscription is due, from its state, in milliseconds of Unix time. The text is JSON written by this program:
-- every quote within a string is escaped, so no value that a merchant chooses can match as a member.
CREATE FUNCTION ledger.due_ms(body text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(body FROM '"due_ms":(\d+)')::bigint;

-- The merchant of a state.
CREATE FUNCTION ledger.merchant_of(body text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(body FROM '"merchant_id":"(mer_[0-9A-Z]{26})"');

-- The lead of a merchant's clock over the machine's, in seconds. Test mode only.
CREATE FUNCTION ledger.ahead_seconds(body text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(body FROM '"clock_ahead_seconds":(\d+)')::bigint;

CREATE INDEX subscription_due ON ledger.state (ledger.due_ms(body)) WHERE kind = 'subscription';
CREATE INDEX subscription_of_merchant ON ledger.state (ledger.merchant_of(body), ledger.due_ms(body)) WHERE kind = 'subscription';
CREATE INDEX clock_ahead ON ledger.state (ledger.ahead_seconds(body)) WHERE kind = 'merchant' AND ledger.ahead_seconds(body) > 0;

-- The charges of the test processor, which stands for a payment processor and its own database.
CREATE SCHEMA test_processor;
CREATE TABLE test_processor.charge (
    payment_id text        PRIMARY KEY,
    token      text        NOT NULL,
    amount     numeric     NOT NULL,
    declined   text,
    reference  text        NOT NULL DEFAULT gen_random_uuid()::text,
    asked      integer     NOT NULL DEFAULT 1,
    at         timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN test_processor.charge.asked IS 'How often the charge was requested; it was made once.';
GRANT USAGE ON SCHEMA test_processor TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE ON test_processor.charge TO farthing_gateway;
