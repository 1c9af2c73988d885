-- The generations of the read models: a row per read model and version of its shape, with the Postgres schema that holds
-- its tables. A program reads and writes the generations of its own version, so two releases run side by side. A
-- projector builds a generation from the log and then marks it as built. `farthing prune` drops the earlier ones.
CREATE TABLE ledger.read_models (
    name        text    NOT NULL,
    version     bigint  NOT NULL,
    schema_name text    NOT NULL UNIQUE,
    number      integer NOT NULL,
    built       boolean NOT NULL,
    PRIMARY KEY (name, version)
);
COMMENT ON COLUMN ledger.read_models.number IS 'The newest generation of a read model has the highest number.';
COMMENT ON COLUMN ledger.read_models.built IS 'Whether it has once caught up with the log.';
GRANT SELECT ON ledger.read_models TO farthing_gateway, farthing_projector;
GRANT UPDATE (built) ON ledger.read_models TO farthing_projector;
