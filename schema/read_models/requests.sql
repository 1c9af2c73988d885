-- Requests: one row per forwarded call. Its opening and its end are in two tables, so that rows are only inserted,
-- never updated; the view joins them. The columns of the end are null while a request is pending, and amounts stay
-- null when it ended with an error. Metadata without a pair, and units, costs, a fee, a charge and an overrun of zero, are
-- null, too: a null costs nothing to write.
--
-- No two rows have the same key in an index, so Postgres need not look for such before it divides a page of one.

CREATE TABLE {schema}.opened (
    partition            smallint NOT NULL,
    request_id           text COLLATE "C" NOT NULL,
    merchant_id          text COLLATE "C" NOT NULL,
    connection_id        text COLLATE "C",
    product_id           text COLLATE "C",
    created_at           timestamptz NOT NULL,
    charge               text  NOT NULL,
    provider             text  NOT NULL,
    provider_key_type    text  NOT NULL,
    endpoint             text  NOT NULL,
    model                text,
    rate_type            text,
    tier_type            text,
    token_basis          text,
    base_cost_payer      text,
    service_charge_payer text  NOT NULL,
    metadata             jsonb,
    reported_id          text COLLATE "C",
    PRIMARY KEY (partition, request_id)
);
CREATE INDEX opened_by_merchant ON {schema}.opened (partition, merchant_id, created_at, request_id)
    WITH (deduplicate_items = off);
CREATE INDEX opened_by_connection
    ON {schema}.opened (partition, merchant_id, connection_id, created_at, request_id)
    WITH (deduplicate_items = off)
    WHERE connection_id IS NOT NULL;
CREATE INDEX opened_by_product
    ON {schema}.opened (partition, merchant_id, product_id, created_at, request_id)
    WITH (deduplicate_items = off)
    WHERE product_id IS NOT NULL;
CREATE UNIQUE INDEX opened_by_reported_id ON {schema}.opened (partition, merchant_id, reported_id)
    WHERE reported_id IS NOT NULL;

-- One row per key-value pair of a request's metadata; `pair` is a digest of merchant, key and value. A filter reads the
-- index in the order of the list, so a page costs the same at any depth and for any number of matching requests, also
-- when filtered by customer or meter.
CREATE TABLE {schema}.metadata_pairs (
    partition     smallint NOT NULL,
    pair          bytea       NOT NULL,
    created_at    timestamptz NOT NULL,
    request_id    text COLLATE "C" NOT NULL,
    connection_id text COLLATE "C",
    product_id    text COLLATE "C"
);
CREATE INDEX metadata_pairs_in_order
    ON {schema}.metadata_pairs (partition, pair, created_at, request_id) WITH (deduplicate_items = off);
CREATE INDEX metadata_pairs_of_connection
    ON {schema}.metadata_pairs (partition, pair, connection_id, created_at, request_id) INCLUDE (product_id)
    WHERE connection_id IS NOT NULL;
CREATE INDEX metadata_pairs_of_product
    ON {schema}.metadata_pairs (partition, pair, product_id, created_at, request_id)
    WITH (deduplicate_items = off)
    WHERE product_id IS NOT NULL;

CREATE TABLE {schema}.ended (
    partition             smallint NOT NULL,
    request_id            text COLLATE "C" NOT NULL,
    status                text        NOT NULL CHECK (status IN ('completed', 'error')),
    ended_at              timestamptz NOT NULL,
    http_status           integer,
    failure_reason        text,
    raw_usage             text,
    response_id           text,
    model                 text,
    provider_timestamp    timestamptz,
    usage                 text,
    total_tokens          bigint,
    units                 numeric,
    breakdown             text,
    marks                 text,
    service_charge_payer  text,
    input_cost            numeric(28, 10),
    output_cost           numeric(28, 10),
    model_cost            numeric(28, 10),
    fee_amount            numeric(28, 10),
    service_charge_amount numeric(28, 10),
    total_request_cost    numeric(28, 10) CHECK (total_request_cost = total_wallet_cost + total_merchant_cost),
    total_wallet_cost     numeric(28, 10) CHECK (total_wallet_cost <> 'NaN'),
    total_merchant_cost   numeric(28, 10) CHECK (total_merchant_cost <> 'NaN'),
    overrun               numeric(28, 10) CHECK (overrun <> 'NaN'),
    PRIMARY KEY (partition, request_id)
);

CREATE VIEW {schema}.requests AS
SELECT o.partition, o.request_id, o.merchant_id, o.connection_id, o.product_id, o.created_at,
       COALESCE(e.status, 'pending') AS status,
       o.charge, o.provider, o.provider_key_type, o.endpoint, COALESCE(e.model, o.model) AS model,
       o.rate_type, o.tier_type, o.token_basis, o.base_cost_payer,
       COALESCE(e.service_charge_payer, o.service_charge_payer) AS service_charge_payer, o.metadata, o.reported_id,
       e.ended_at, e.http_status, e.failure_reason, e.raw_usage, e.response_id, e.provider_timestamp,
       e.usage, e.total_tokens, e.units, e.breakdown, e.marks, e.input_cost, e.output_cost, e.model_cost, e.fee_amount,
       e.service_charge_amount, e.total_request_cost, e.total_wallet_cost, e.total_merchant_cost, e.overrun
FROM {schema}.opened AS o
LEFT JOIN {schema}.ended AS e ON e.partition = o.partition AND e.request_id = o.request_id;
