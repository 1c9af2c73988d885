-- The due queues of one webhook, found by an expression: under statistics that are older than most of its queues, Postgres
-- looked for one queue of a webhook among all of them.
-- While a long transaction reads the table, the change is tried for moments: whoever waits for a lock keeps all others waiting.
DO $$
BEGIN
    FOR attempt IN 1..120 LOOP
        BEGIN
            PERFORM set_config('lock_timeout', '300ms', true);
            DROP INDEX webhooks.lane_by_webhook;
            CREATE INDEX lane_by_webhook ON webhooks.lane (partition, (webhook_id || ''), due_at);
            PERFORM set_config('lock_timeout', '0', true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.5);
        END;
    END LOOP;
    RAISE EXCEPTION 'webhooks.lane is in use by a long transaction: end it, or migrate again later'
        USING ERRCODE = 'lock_not_available';
END $$;
