-- The webhook outbox: deliveries, queued from the log exactly once, and their progress. Not a read model: a rebuild
-- would deliver every event again.

CREATE SCHEMA webhooks;

-- The position in each partition of the log up to which the outbox has been filled. It moves in the transaction that
-- fills it, and only from the position that the process expects (the fence). The process that fills the outbox adds the
-- rows.
CREATE TABLE webhooks.cursor (
    partition smallint PRIMARY KEY,
    position  bigint   NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- The webhooks at the cursor, with their settings from the log.
CREATE TABLE webhooks.webhook (
    partition   smallint    NOT NULL,
    webhook_id  text COLLATE "C" NOT NULL,
    merchant_id text COLLATE "C" NOT NULL,
    settings    text        NOT NULL,
    PRIMARY KEY (partition, webhook_id)
);
CREATE INDEX webhook_by_merchant ON webhooks.webhook (partition, merchant_id);

-- One delivery per webhook and event. A lane is the queue of one webhook for one customer, or for events without one;
-- its events are delivered in order, one at a time.
CREATE TABLE webhooks.delivery (
    partition       smallint    NOT NULL,
    webhook_id      text COLLATE "C" NOT NULL,
    position        bigint      NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    topic           text        NOT NULL,
    lane            text COLLATE "C" NOT NULL,
    created_at      timestamptz NOT NULL,
    queued_at       timestamptz NOT NULL DEFAULT now(),
    status          text        NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
    attempts        integer     NOT NULL DEFAULT 0,
    http_status     integer,
    error           text,
    next_attempt_at timestamptz,
    delivered_at    timestamptz,
    PRIMARY KEY (partition, webhook_id, position)
);
CREATE UNIQUE INDEX delivery_by_event ON webhooks.delivery (partition, webhook_id, event_id);
CREATE INDEX delivery_pending ON webhooks.delivery (partition, webhook_id, lane, position) WHERE status = 'pending';
CREATE INDEX delivery_ended ON webhooks.delivery (partition, queued_at) WHERE status <> 'pending';

-- The queues with pending deliveries. The process that delivers holds a claim, and due_at is then when the claim
-- expires, so that the queues of a dead process become free. A claim's number is random, so that none is used
-- twice.
CREATE TABLE webhooks.lane (
    partition  smallint    NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    lane       text COLLATE "C" NOT NULL,
    due_at     timestamptz NOT NULL DEFAULT now(),
    claim      bigint,
    PRIMARY KEY (partition, webhook_id, lane)
) WITH (fillfactor = 50);
CREATE INDEX lane_by_due ON webhooks.lane (partition, due_at);

GRANT USAGE ON SCHEMA webhooks TO farthing_projector, farthing_gateway;
GRANT SELECT, INSERT, UPDATE ON webhooks.cursor TO farthing_projector;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks.webhook TO farthing_projector;
GRANT SELECT, INSERT ON webhooks.delivery TO farthing_projector;
GRANT SELECT, INSERT, UPDATE ON webhooks.lane TO farthing_projector;
GRANT SELECT ON webhooks.cursor TO farthing_gateway;
GRANT SELECT, UPDATE, DELETE ON webhooks.delivery TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks.lane TO farthing_gateway;
