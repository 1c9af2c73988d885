-- Connections: the links between a merchant and a wallet, and what is in each wallet. A deleted connection's row keeps
-- only its place in the list, so that a cursor on it stays good; its wallet's row stays as it is.

CREATE TABLE {schema}.connections (
    connection_id text COLLATE "C" PRIMARY KEY,
    merchant_id   text COLLATE "C" NOT NULL,
    wallet_id     text COLLATE "C" NOT NULL,
    reference_id  text COLLATE "C",
    created_at    timestamptz NOT NULL,
    deleted_at    timestamptz
);
CREATE INDEX connections_by_merchant
    ON {schema}.connections (merchant_id, created_at DESC, connection_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX connections_by_reference ON {schema}.connections (merchant_id, reference_id)
    WHERE reference_id IS NOT NULL;

-- Every wallet, a merchant's own (connection_id null) as well: balance, credit of plan and bundles, the cycle of the
-- subscription, and whether it is filled up by itself. Balances change often: room for updates in place.
CREATE TABLE {schema}.wallets (
    wallet_id     text COLLATE "C" PRIMARY KEY,
    merchant_id   text COLLATE "C" NOT NULL,
    connection_id text COLLATE "C",
    balance       numeric(28, 10) NOT NULL CHECK (balance <> 'NaN'),
    credit        numeric(28, 10) NOT NULL CHECK (credit >= 0 AND credit <> 'NaN'),
    cycle_start   timestamptz,
    cycle_end     timestamptz,
    autopay       boolean     NOT NULL
) WITH (fillfactor = 50);
