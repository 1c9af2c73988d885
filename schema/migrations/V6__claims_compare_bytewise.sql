-- As in V4: the ids of claims and of their calls are compared with the ids of states.
ALTER TABLE ledger.idempotency ALTER COLUMN id TYPE text COLLATE "C", ALTER COLUMN request_id TYPE text COLLATE "C";
