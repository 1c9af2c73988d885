-- What an append, and each reader of it, does less of. Nothing that is written changes.
-- With little free space wanted, a page is pruned at nearly every update; half a page holds many versions of these rows.
DO $$
BEGIN
    ALTER TABLE ledger.heads SET (fillfactor = 50);
    ALTER TABLE ledger.idle_spans SET (fillfactor = 50);
EXCEPTION WHEN feature_not_supported THEN
    -- Citus may refuse it for a distributed table.
    NULL;
END $$;

-- A record batch of 45 to about 200 events stays in its row, compressed: also its hashes, which cannot be compressed.
-- While a long transaction reads the table, such as a dump, the change is tried for moments: whoever waits for a lock keeps all
-- appends waiting.
DO $$
BEGIN
    FOR attempt IN 1..120 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '300ms', true);
            ALTER TABLE ledger.batches ALTER COLUMN events SET STORAGE MAIN, ALTER COLUMN hashes SET STORAGE MAIN;
            PERFORM set_config('lock_timeout', '0', true);
            RETURN;
        EXCEPTION
            WHEN feature_not_supported THEN
                -- Citus refuses it for a distributed table.
                PERFORM set_config('lock_timeout', '0', true);
                RETURN;
            WHEN lock_not_available THEN
                PERFORM pg_sleep(0.5);
        END;
    END LOOP;
    RAISE EXCEPTION 'ledger.batches is in use by a long transaction: end it, or migrate again later'
        USING ERRCODE = 'lock_not_available';
END $$;
