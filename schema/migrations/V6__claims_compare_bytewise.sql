-- As in V4: the ids of claims and of the calls they began are compared with those of states.
ALTER TABLE ledger.idempotency ALTER COLUMN id TYPE text COLLATE "C", ALTER COLUMN request_id TYPE text COLLATE "C";
