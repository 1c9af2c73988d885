-- Customers, as GET /customers shows them. Contact data is in personal.customer; the active subscription is JSON
-- text. A deleted customer keeps a row, without its data, so that a list cursor on it stays valid.

CREATE TABLE {schema}.customers (
    customer_id  text COLLATE "C" PRIMARY KEY,
    merchant_id  text COLLATE "C" NOT NULL,
    wallet_id    text COLLATE "C" NOT NULL,
    reference_id text COLLATE "C",
    subscription text,
    metadata     text        NOT NULL,
    created_at   timestamptz NOT NULL,
    deleted_at   timestamptz
);
CREATE INDEX customers_by_merchant ON {schema}.customers (merchant_id, created_at DESC, customer_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX customers_by_reference ON {schema}.customers (merchant_id, reference_id)
    WHERE reference_id IS NOT NULL;
