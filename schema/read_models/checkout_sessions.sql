-- Checkout sessions, as GET /checkout_sessions shows them.

CREATE TABLE {schema}.checkout_sessions (
    partition           smallint NOT NULL,
    checkout_session_id text COLLATE "C" NOT NULL,
    merchant_id         text COLLATE "C" NOT NULL,
    checkout_mode       text        NOT NULL
        CHECK (checkout_mode IN ('onboarding', 'topup', 'subscription', 'credit_bundle')),
    origin_url          text        NOT NULL,
    customer_id         text COLLATE "C",
    reference_id        text COLLATE "C",
    plan_id             text COLLATE "C",
    credit_bundle_id    text COLLATE "C",
    created_at          timestamptz NOT NULL,
    expires_at          timestamptz NOT NULL,
    completed_at        timestamptz,
    PRIMARY KEY (partition, checkout_session_id)
);
CREATE INDEX checkout_sessions_by_merchant
    ON {schema}.checkout_sessions (partition, merchant_id, created_at DESC, checkout_session_id DESC);
CREATE INDEX checkout_sessions_by_reference
    ON {schema}.checkout_sessions (partition, merchant_id, reference_id, created_at DESC, checkout_session_id DESC)
    WHERE reference_id IS NOT NULL;
