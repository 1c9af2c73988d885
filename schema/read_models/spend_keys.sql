-- Spend keys, as GET /manage/spend_keys/{id} shows them.

CREATE TABLE {schema}.spend_keys (
    spend_key_id     text COLLATE "C" PRIMARY KEY,
    merchant_id      text COLLATE "C" NOT NULL,
    wallet_id        text COLLATE "C" NOT NULL,
    connection_id    text COLLATE "C",
    key_preview      text        NOT NULL,
    rotation         integer     NOT NULL,
    status           text        NOT NULL CHECK (status IN ('active', 'paused')),
    settings         text        NOT NULL,
    current_spend    numeric(28, 10) NOT NULL CHECK (current_spend <> 'NaN'),
    current_requests bigint      NOT NULL,
    total_spend      numeric(28, 10) NOT NULL CHECK (total_spend <> 'NaN'),
    total_requests   bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    last_used_at     timestamptz
);
CREATE INDEX spend_keys_by_merchant ON {schema}.spend_keys (merchant_id, created_at DESC, spend_key_id DESC);
