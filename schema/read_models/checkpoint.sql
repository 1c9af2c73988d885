-- The beginning of every generation of every read model: its schema, and its position in the log.

CREATE SCHEMA {schema};
CREATE TABLE {schema}.checkpoint (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    position   bigint  NOT NULL,
    generation integer NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO {schema}.checkpoint (position, generation) VALUES (0, {generation});
