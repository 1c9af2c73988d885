-- Requests: one row per forwarded call. What its end tells is null while it is pending; amounts stay null when
-- it ended as an error.

CREATE TABLE {schema}.requests (
    -- From its opening.
    request_id            text COLLATE "C" PRIMARY KEY,
    merchant_id           text COLLATE "C" NOT NULL,
    connection_id         text COLLATE "C",
    product_id            text COLLATE "C",
    created_at            timestamptz NOT NULL,
    status                text        NOT NULL CHECK (status IN ('pending', 'completed', 'error')),
    charge                text        NOT NULL,
    provider              text        NOT NULL,
    provider_key_type     text        NOT NULL,
    endpoint              text        NOT NULL,
    model                 text,
    rate_type             text,
    tier_type             text,
    token_basis           text,
    base_cost_payer       text,
    service_charge_payer  text        NOT NULL,
    metadata              jsonb       NOT NULL,
    -- From its end.
    ended_at              timestamptz,
    http_status           integer,
    failure_reason        text,
    raw_usage             text,
    response_id           text,
    provider_timestamp    timestamptz,
    usage                 text,
    units                 numeric,
    breakdown             text,
    marks                 text,
    input_cost            numeric(28, 10),
    output_cost           numeric(28, 10),
    model_cost            numeric(28, 10),
    fee_amount            numeric(28, 10),
    service_charge_amount numeric(28, 10),
    total_request_cost    numeric(28, 10),
    total_wallet_cost     numeric(28, 10),
    total_merchant_cost   numeric(28, 10),
    overrun               numeric(28, 10)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX requests_by_merchant ON {schema}.requests (merchant_id, created_at DESC, request_id DESC);
CREATE INDEX requests_by_connection
    ON {schema}.requests (merchant_id, connection_id, created_at DESC, request_id DESC)
    WHERE connection_id IS NOT NULL;
CREATE INDEX requests_by_product
    ON {schema}.requests (merchant_id, product_id, created_at DESC, request_id DESC)
    WHERE product_id IS NOT NULL;
CREATE INDEX requests_by_metadata ON {schema}.requests USING gin (metadata jsonb_path_ops)
    WHERE metadata <> '{}';
