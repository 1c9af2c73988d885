-- The entries of wallets: each change of a wallet's money by an event, with the money after it. Rows are only inserted.
-- An entry counts at `counted_at`: when it occurred, or when the entry before it counts, if that is later, because the
-- clocks of two gateways may differ. So the order of time is the order of the log: an instant is found by a binary search
-- over positions, and no index of times is needed. A change or a credit of zero is null, as most are.

CREATE TABLE {schema}.entries (
    partition            smallint NOT NULL,
    wallet_id            text COLLATE "C" NOT NULL,
    position             bigint NOT NULL,
    occurred_at          timestamptz NOT NULL,
    counted_at           timestamptz NOT NULL,
    cause                text NOT NULL,
    balance_change       numeric(28, 10),
    plan_credit_change   numeric(28, 10),
    bundle_credit_change numeric(28, 10),
    balance              numeric(28, 10) NOT NULL CHECK (balance <> 'NaN'),
    plan_credit          numeric(28, 10) CHECK (plan_credit >= 0 AND plan_credit <> 'NaN'),
    bundle_credit        numeric(28, 10) CHECK (bundle_credit >= 0 AND bundle_credit <> 'NaN'),
    PRIMARY KEY (partition, wallet_id, position)
);

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
