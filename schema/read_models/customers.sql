-- Customers, as GET /customers shows them; contact data stands in personal.customer, the active subscription as JSON text. A deleted customer's row keeps
-- only its place in the list, so that a cursor on it stays good.

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
