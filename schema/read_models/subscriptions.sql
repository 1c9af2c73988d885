-- Subscriptions, as GET /subscriptions shows them; the terms of the cycle and the pending change are JSON text.
-- Cancelled ones keep their rows.

CREATE TABLE {schema}.subscriptions (
    partition             smallint NOT NULL,
    subscription_id       text COLLATE "C" NOT NULL,
    merchant_id           text COLLATE "C" NOT NULL,
    customer_id           text COLLATE "C" NOT NULL,
    wallet_id             text COLLATE "C" NOT NULL,
    plan_id               text COLLATE "C" NOT NULL,
    terms                 text        NOT NULL,
    status                text COLLATE "C" NOT NULL CHECK (status IN ('active', 'cancelled')),
    anchor                timestamptz NOT NULL,
    cycle_start           timestamptz NOT NULL,
    cycle_end             timestamptz NOT NULL,
    auto_top_up_bundle_id text,
    pending_change        text,
    credit                numeric(28, 10) NOT NULL CHECK (credit >= 0 AND credit <> 'NaN'),
    started_at            timestamptz NOT NULL,
    cancelled_at          timestamptz,
    PRIMARY KEY (partition, subscription_id)
) WITH (fillfactor = 50);
CREATE INDEX subscriptions_by_merchant
    ON {schema}.subscriptions (partition, merchant_id, started_at DESC, subscription_id DESC);
CREATE INDEX subscriptions_by_status
    ON {schema}.subscriptions (partition, merchant_id, status, started_at DESC, subscription_id DESC);
CREATE INDEX subscriptions_by_customer
    ON {schema}.subscriptions (partition, merchant_id, customer_id, started_at DESC, subscription_id DESC);

-- The remaining bundle credit of each wallet that ever had any; it outlasts the subscription.
CREATE TABLE {schema}.bundle_credit (
    partition smallint NOT NULL,
    wallet_id text COLLATE "C" NOT NULL,
    remaining numeric(28, 10) NOT NULL CHECK (remaining >= 0 AND remaining <> 'NaN'),
    PRIMARY KEY (partition, wallet_id)
) WITH (fillfactor = 50);
