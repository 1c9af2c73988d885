-- The number of calls with each secret key in its current window, one row per key. Unlogged: no write waits for the
-- disk, and a crash of the database may lose the counts of one minute.
CREATE UNLOGGED TABLE ledger.rate_window (
    key_hash text    COLLATE "C" PRIMARY KEY,
    started  bigint  NOT NULL,
    calls    integer NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT, INSERT, UPDATE ON ledger.rate_window TO farthing_gateway;
