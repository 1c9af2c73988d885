-- Connections, the links between a merchant and a wallet, and the wallets. A deleted connection keeps a row, without
-- its data, so that a list cursor on it stays valid; its wallet's row is kept.

CREATE TABLE {schema}.connections (
    partition     smallint NOT NULL,
    connection_id text COLLATE "C" NOT NULL,
    merchant_id   text COLLATE "C" NOT NULL,
    wallet_id     text COLLATE "C" NOT NULL,
    reference_id  text COLLATE "C",
    created_at    timestamptz NOT NULL,
    deleted_at    timestamptz,
    PRIMARY KEY (partition, connection_id)
);
CREATE INDEX connections_by_merchant
    ON {schema}.connections (partition, merchant_id, created_at DESC, connection_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX connections_by_reference ON {schema}.connections (partition, merchant_id, reference_id)
    WHERE reference_id IS NOT NULL;

-- Every wallet, including the merchant's own (connection_id null): balance, credit of plan and bundles, the cycle of
-- the subscription, and whether it recharges automatically. Balances change often, so pages leave room for HOT
-- updates.
CREATE TABLE {schema}.wallets (
    partition     smallint NOT NULL,
    wallet_id     text COLLATE "C" NOT NULL,
    merchant_id   text COLLATE "C" NOT NULL,
    connection_id text COLLATE "C",
    balance       numeric(28, 10) NOT NULL CHECK (balance <> 'NaN'),
    credit        numeric(28, 10) NOT NULL CHECK (credit >= 0 AND credit <> 'NaN'),
    cycle_start   timestamptz,
    cycle_end     timestamptz,
    autopay       boolean     NOT NULL,
    PRIMARY KEY (partition, wallet_id)
) WITH (fillfactor = 50);
