-- Calls with each secret key in its present window: a row per key. Unlogged: a crash of the database may forget a
-- minute's count, and nothing waits for a disk.
CREATE UNLOGGED TABLE ledger.rate_window (
    key_hash text    COLLATE "C" PRIMARY KEY,
    started  bigint  NOT NULL,
    calls    integer NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
GRANT SELECT, INSERT, UPDATE ON ledger.rate_window TO farthing_gateway;
