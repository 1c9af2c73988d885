-- The version of the shape in which each read model is stored. `farthing migrate` rebuilds those that are not of the
-- program's version.
CREATE TABLE ledger.shape (
    name    text   PRIMARY KEY,
    version bigint NOT NULL
);
GRANT SELECT ON ledger.shape TO farthing_gateway, farthing_projector;
