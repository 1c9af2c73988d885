-- Payment methods, as GET /payment_methods shows them: of a card only the brand, the last four digits and the expiry.

CREATE TABLE {schema}.payment_methods (
    partition         smallint NOT NULL,
    payment_method_id text COLLATE "C" NOT NULL,
    merchant_id       text COLLATE "C" NOT NULL,
    customer_id       text COLLATE "C",
    brand             text        NOT NULL,
    last4             text        NOT NULL,
    exp_month         smallint    NOT NULL,
    exp_year          smallint    NOT NULL,
    created_at        timestamptz NOT NULL,
    PRIMARY KEY (partition, payment_method_id)
);
CREATE INDEX payment_methods_of_merchants_own
    ON {schema}.payment_methods (partition, merchant_id, created_at DESC, payment_method_id DESC)
    WHERE customer_id IS NULL;
CREATE INDEX payment_methods_of_customers
    ON {schema}.payment_methods (partition, customer_id, created_at DESC, payment_method_id DESC)
    WHERE customer_id IS NOT NULL;
