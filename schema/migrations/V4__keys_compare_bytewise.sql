-- Keys are compared byte by byte, whatever the collation of the database: faster, and the same on every server.
ALTER TABLE ledger.events ALTER COLUMN key TYPE text COLLATE "C";
ALTER TABLE ledger.state ALTER COLUMN kind TYPE text COLLATE "C", ALTER COLUMN id TYPE text COLLATE "C";
