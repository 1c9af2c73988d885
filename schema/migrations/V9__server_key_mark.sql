-- A mark of the server key that this instance uses, which does not reveal it. The first gateway, or the first operator
-- command on an empty log, leaves it; from then on no process works with another key.
CREATE TABLE ledger.server_key_mark (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    mark     text    NOT NULL
);
GRANT SELECT, INSERT ON ledger.server_key_mark TO farthing_gateway;
