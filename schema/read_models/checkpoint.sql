-- What every generation of every read model begins with: its schema and how far in the log it has come.

CREATE SCHEMA {schema};
CREATE TABLE {schema}.checkpoint (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    position   bigint  NOT NULL,
    generation integer NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO {schema}.checkpoint (position, generation) VALUES (0, {generation});
