-- Payments of deleted customers are refunded; the test processor records the refund, as a real one would.
ALTER TABLE test_processor.charge ADD COLUMN refund text;
COMMENT ON COLUMN test_processor.charge.refund IS 'The processor''s id of the full refund.';
COMMENT ON COLUMN test_processor.charge.declined IS 'Why no money was taken; voided if the charge was never requested.';
