-- The beginning of every generation of every read model: its schema, and its position in each partition of the log. A
-- projector adds the rows of the other partitions when it opens the generation.

CREATE SCHEMA {schema};
CREATE TABLE {schema}.checkpoint (
    partition  smallint PRIMARY KEY,
    position   bigint   NOT NULL,
    generation integer  NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO {schema}.checkpoint (partition, position, generation) VALUES (0, 0, {generation});
