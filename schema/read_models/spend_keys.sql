-- Spend keys, as GET /spend_keys shows them. A deleted key's row stays as a place in the list, so that a cursor on it
-- stays good.

CREATE TABLE {schema}.spend_keys (
    spend_key_id  text COLLATE "C" PRIMARY KEY,
    merchant_id   text COLLATE "C" NOT NULL,
    wallet_id     text COLLATE "C" NOT NULL,
    connection_id text COLLATE "C",
    key_preview   text        NOT NULL,
    rotation      integer     NOT NULL,
    status        text        NOT NULL CHECK (status IN ('active', 'paused')),
    settings      text        NOT NULL,
    spend_cycle   text        NOT NULL,
    request_cycle text        NOT NULL,
    created_at    timestamptz NOT NULL,
    last_used_at  timestamptz,
    deleted_at    timestamptz
) WITH (fillfactor = 50);
CREATE INDEX spend_keys_by_merchant ON {schema}.spend_keys (merchant_id, created_at DESC, spend_key_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX spend_keys_by_connection
    ON {schema}.spend_keys (merchant_id, connection_id, created_at DESC, spend_key_id DESC)
    WHERE connection_id IS NOT NULL AND deleted_at IS NULL;

-- What was admitted in each cycle of each key, and what of it has been spent. It only ever adds up, so a key may
-- change the cycle of a limit at any time. Rows are moved often: room for updates in place.
CREATE TABLE {schema}.spending (
    spend_key_id text COLLATE "C" NOT NULL,
    cycle        text COLLATE "C" NOT NULL CHECK (cycle IN ('daily', 'weekly', 'monthly', 'total')),
    started_at   timestamptz      NOT NULL,
    spent        numeric(28, 10)  NOT NULL CHECK (spent <> 'NaN'),
    requests     bigint           NOT NULL,
    PRIMARY KEY (spend_key_id, cycle, started_at)
) WITH (fillfactor = 50);
