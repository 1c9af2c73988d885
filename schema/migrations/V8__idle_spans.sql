-- Runs of events that change no row of a read model: those after `starts_after` up to `ends_at`. A projection that finds
-- only such events moves its checkpoint rarely, and writes here instead, in one statement for all read models. A read
-- model whose checkpoint is in a span shows the log up to the span's end. A span follows from the events and from the
-- version of the read model alone, so it stays true whatever happens to the checkpoint.
CREATE TABLE ledger.idle_spans (
    partition    smallint NOT NULL,
    read_model   text COLLATE "C" NOT NULL,
    version      bigint   NOT NULL,
    starts_after bigint   NOT NULL,
    ends_at      bigint   NOT NULL,
    PRIMARY KEY (partition, read_model, version)
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT ON ledger.idle_spans TO farthing_gateway, farthing_projector;
GRANT INSERT, UPDATE ON ledger.idle_spans TO farthing_projector;
