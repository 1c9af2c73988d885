-- The due queues of one webhook, found by an expression: under statistics that are older than most of its queues, Postgres
-- looked for one queue of a webhook among all of them.
DROP INDEX webhooks.lane_by_webhook;
CREATE INDEX lane_by_webhook ON webhooks.lane (partition, (webhook_id || ''), due_at);
