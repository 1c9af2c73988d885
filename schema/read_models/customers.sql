-- Customers, as GET /customers shows them. Contact data is in personal.customer; the active subscription is JSON
-- text. A deleted customer keeps a row, without its data, so that a list cursor on it stays valid.

CREATE TABLE {schema}.customers (
    partition    smallint NOT NULL,
    customer_id  text COLLATE "C" NOT NULL,
    merchant_id  text COLLATE "C" NOT NULL,
    wallet_id    text COLLATE "C" NOT NULL,
    reference_id text COLLATE "C",
    subscription text,
    metadata     text        NOT NULL,
    created_at   timestamptz NOT NULL,
    deleted_at   timestamptz,
    PRIMARY KEY (partition, customer_id)
);
CREATE INDEX customers_by_merchant
    ON {schema}.customers (partition, merchant_id, created_at DESC, customer_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX customers_by_reference ON {schema}.customers (partition, merchant_id, reference_id)
    WHERE reference_id IS NOT NULL;
