-- The due queues of one webhook: a claim passes over the webhooks that have as many deliveries at once as they may, however
-- many queues of theirs are due.
CREATE INDEX lane_by_webhook ON webhooks.lane (partition, webhook_id, due_at);
