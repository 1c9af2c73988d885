-- Payments of customers who are no more are given back: the test processor remembers that, as a real one would.
ALTER TABLE test_processor.charge ADD COLUMN refund text;
COMMENT ON COLUMN test_processor.charge.refund IS 'Its own id of the money that it gave back, all of it.';
COMMENT ON COLUMN test_processor.charge.declined IS 'Why no money was taken; voided where it was never asked to charge.';
