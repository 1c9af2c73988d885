-- Customers, as GET /customers/{id} shows them; contact data stands in personal.customer.

CREATE TABLE {schema}.customers (
    customer_id  text COLLATE "C" PRIMARY KEY,
    merchant_id  text COLLATE "C" NOT NULL,
    wallet_id    text COLLATE "C" NOT NULL,
    reference_id text COLLATE "C",
    metadata     text        NOT NULL,
    created_at   timestamptz NOT NULL
);
CREATE INDEX customers_by_reference ON {schema}.customers (merchant_id, reference_id)
    WHERE reference_id IS NOT NULL;
