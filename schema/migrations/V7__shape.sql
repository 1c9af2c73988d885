-- The version of the shape in which the states and each read model are stored. Without a row they are older than this
-- table. `farthing migrate` rebuilds those that are not of the program's version.
CREATE TABLE ledger.shape (
    name    text    PRIMARY KEY,
    version bigint NOT NULL
);
GRANT SELECT ON ledger.shape TO farthing_gateway, farthing_projector;
