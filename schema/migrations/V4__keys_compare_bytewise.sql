-- Keys are compared byte by byte, whatever language the database was made for: faster, and the same everywhere.
ALTER TABLE ledger.events ALTER COLUMN key TYPE text COLLATE "C";
ALTER TABLE ledger.state ALTER COLUMN kind TYPE text COLLATE "C", ALTER COLUMN id TYPE text COLLATE "C";
