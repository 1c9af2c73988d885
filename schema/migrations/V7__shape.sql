-- The version of the shape in which the states and each read model stand. One without a row is from before there were
-- versions; `farthing migrate` folds anew what is not of the program's version.
CREATE TABLE ledger.shape (
    name    text    PRIMARY KEY,
    version bigint NOT NULL
);
GRANT SELECT ON ledger.shape TO farthing_gateway, farthing_projector;
