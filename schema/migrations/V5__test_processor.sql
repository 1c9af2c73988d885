-- The charges of the test processor, which stands for a payment processor and its own database.
CREATE SCHEMA test_processor;
CREATE TABLE test_processor.charge (
    payment_id text        PRIMARY KEY,
    token      text        NOT NULL,
    amount     numeric     NOT NULL,
    declined   text,
    reference  text        NOT NULL DEFAULT gen_random_uuid()::text,
    asked      integer     NOT NULL DEFAULT 1,
    at         timestamptz NOT NULL DEFAULT now(),
    refund     text
);
COMMENT ON COLUMN test_processor.charge.asked IS 'How often the charge was requested; it was made once.';
COMMENT ON COLUMN test_processor.charge.refund IS 'The processor''s id of the full refund.';
COMMENT ON COLUMN test_processor.charge.declined IS 'Why no money was taken; voided if the charge was never requested.';
GRANT USAGE ON SCHEMA test_processor TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE ON test_processor.charge TO farthing_gateway;
