-- The webhook outbox: deliveries, queued from the log exactly once, and their progress. Not a read model: a rebuild
-- would deliver every event again.

CREATE SCHEMA webhooks;

-- The position up to which the outbox has been filled. It moves in the transaction that fills it, and only from the
-- position that the process expects (the fence).
CREATE TABLE webhooks.cursor (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    position bigint  NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
INSERT INTO webhooks.cursor (position) VALUES (0);

-- The webhooks at the cursor, with their settings from the log.
CREATE TABLE webhooks.webhook (
    webhook_id  text COLLATE "C" PRIMARY KEY,
    merchant_id text COLLATE "C" NOT NULL,
    settings    text        NOT NULL
);
CREATE INDEX webhook_by_merchant ON webhooks.webhook (merchant_id);

-- One delivery per webhook and event. A lane is the queue of one webhook for one customer, or for events without one;
-- its events are delivered in order, one at a time.
CREATE TABLE webhooks.delivery (
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
    PRIMARY KEY (webhook_id, position)
);
CREATE UNIQUE INDEX delivery_by_event ON webhooks.delivery (webhook_id, event_id);
CREATE INDEX delivery_pending ON webhooks.delivery (webhook_id, lane, position) WHERE status = 'pending';
CREATE INDEX delivery_ended ON webhooks.delivery (queued_at) WHERE status <> 'pending';

-- The queues with pending deliveries. The process that delivers holds a claim, and due_at is then when the claim
-- expires, so that the queues of a dead process become free. A claim's number is used once.
CREATE TABLE webhooks.lane (
    webhook_id text COLLATE "C" NOT NULL,
    lane       text COLLATE "C" NOT NULL,
    due_at     timestamptz NOT NULL DEFAULT now(),
    claim      bigint,
    PRIMARY KEY (webhook_id, lane)
) WITH (fillfactor = 50);
CREATE INDEX lane_by_due ON webhooks.lane (due_at);
CREATE SEQUENCE webhooks.claims;

GRANT USAGE ON SCHEMA webhooks TO farthing_projector, farthing_gateway;
GRANT SELECT, UPDATE ON webhooks.cursor TO farthing_projector;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks.webhook TO farthing_projector;
GRANT SELECT, INSERT ON webhooks.delivery TO farthing_projector;
GRANT SELECT, INSERT, UPDATE ON webhooks.lane TO farthing_projector;
GRANT SELECT ON webhooks.cursor TO farthing_gateway;
GRANT SELECT, UPDATE, DELETE ON webhooks.delivery TO farthing_gateway;
GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks.lane TO farthing_gateway;
GRANT USAGE ON SEQUENCE webhooks.claims TO farthing_gateway;
