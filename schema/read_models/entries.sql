-- The entries of wallets: each change of a wallet's money by an event, with the money after it. Rows are only inserted.
-- An entry counts at `counted_at`: when it occurred, or when the entry before it counts, if that is later, because the
-- clocks of two gateways may differ. So the order of time is the order of the log.

CREATE TABLE {schema}.entries (
    partition            smallint NOT NULL,
    wallet_id            text COLLATE "C" NOT NULL,
    position             bigint NOT NULL,
    occurred_at          timestamptz NOT NULL,
    counted_at           timestamptz NOT NULL,
    cause                text NOT NULL,
    balance_change       numeric(28, 10) NOT NULL,
    plan_credit_change   numeric(28, 10) NOT NULL,
    bundle_credit_change numeric(28, 10) NOT NULL,
    balance              numeric(28, 10) NOT NULL CHECK (balance <> 'NaN'),
    plan_credit          numeric(28, 10) NOT NULL CHECK (plan_credit >= 0 AND plan_credit <> 'NaN'),
    bundle_credit        numeric(28, 10) NOT NULL CHECK (bundle_credit >= 0 AND bundle_credit <> 'NaN'),
    PRIMARY KEY (partition, wallet_id, position)
);
CREATE INDEX entries_by_time ON {schema}.entries (partition, wallet_id, counted_at, position);

-- Every wallet with its money after its last entry, and when and where that counts. It changes often, so pages leave room for HOT updates.
CREATE TABLE {schema}.wallets (
    partition     smallint NOT NULL,
    wallet_id     text COLLATE "C" NOT NULL,
    merchant_id   text COLLATE "C" NOT NULL,
    customer_id   text COLLATE "C",
    balance       numeric(28, 10) NOT NULL,
    plan_credit   numeric(28, 10) NOT NULL,
    bundle_credit numeric(28, 10) NOT NULL,
    counted_at    timestamptz,
    last_position bigint NOT NULL,
    PRIMARY KEY (partition, wallet_id)
) WITH (fillfactor = 50);
