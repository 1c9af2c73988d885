-- Spend keys, as GET /spend_keys shows them. A deleted key keeps its row, so that a list cursor on it stays valid.

CREATE TABLE {schema}.spend_keys (
    partition     smallint NOT NULL,
    spend_key_id  text COLLATE "C" NOT NULL,
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
    deleted_at    timestamptz,
    PRIMARY KEY (partition, spend_key_id)
) WITH (fillfactor = 50);
CREATE INDEX spend_keys_by_merchant
    ON {schema}.spend_keys (partition, merchant_id, created_at DESC, spend_key_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX spend_keys_by_connection
    ON {schema}.spend_keys (partition, merchant_id, connection_id, created_at DESC, spend_key_id DESC)
    WHERE connection_id IS NOT NULL AND deleted_at IS NULL;

-- The requests admitted and the amount spent in each cycle of each key. All cycles are counted, so the cycle of a key's
-- limit may change at any time. Rows change often, so pages leave room for HOT updates.
CREATE TABLE {schema}.spending (
    partition    smallint NOT NULL,
    spend_key_id text COLLATE "C" NOT NULL,
    cycle        text COLLATE "C" NOT NULL CHECK (cycle IN ('daily', 'weekly', 'monthly', 'total')),
    started_at   timestamptz      NOT NULL,
    spent        numeric(28, 10)  NOT NULL CHECK (spent <> 'NaN'),
    requests     bigint           NOT NULL,
    PRIMARY KEY (partition, spend_key_id, cycle, started_at)
) WITH (fillfactor = 50);
