-- What the scheduler of subscriptions looks for among the states, and the journal of the built-in test processor.

-- When a subscription is due, as its state says of itself, in milliseconds of Unix time. The text is JSON that this program
-- wrote: within its strings every quote is escaped, so nothing that a merchant names can look like a member.
CREATE FUNCTION ledger.due_ms(body text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(body FROM '"due_ms":(\d+)')::bigint;

-- Whose a state is.
CREATE FUNCTION ledger.merchant_of(body text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(body FROM '"merchant_id":"(mer_[0-9A-Z]{26})"');

-- How far a merchant's clock is ahead of the machine's, in seconds: in test mode alone.
CREATE FUNCTION ledger.ahead_seconds(body text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(body FROM '"clock_ahead_seconds":(\d+)')::bigint;

CREATE INDEX subscription_due ON ledger.state (ledger.due_ms(body)) WHERE kind = 'subscription';
CREATE INDEX subscription_of_merchant ON ledger.state (ledger.merchant_of(body), ledger.due_ms(body)) WHERE kind = 'subscription';
CREATE INDEX clock_ahead ON ledger.state (ledger.ahead_seconds(body)) WHERE kind = 'merchant' AND ledger.ahead_seconds(body) > 0;

-- The test processor stands for a payment processor; this is what it would keep on its own side.
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
COMMENT ON COLUMN test_processor.charge.asked IS 'How often the charge was asked for; it was made once.';
GRANT USAGE ON SCHEMA test_processor TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE ON test_processor.charge TO farthing_gateway;
