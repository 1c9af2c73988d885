-- Meters, as GET /meters shows them; the price is JSON text. A deleted meter keeps its row, so that a list cursor on it
-- stays valid.

CREATE TABLE {schema}.meters (
    partition   smallint NOT NULL,
    meter_id    text COLLATE "C" NOT NULL,
    merchant_id text COLLATE "C" NOT NULL,
    meter_slug  text COLLATE "C" NOT NULL,
    name        text        NOT NULL,
    price       text        NOT NULL,
    created_at  timestamptz NOT NULL,
    deleted_at  timestamptz,
    PRIMARY KEY (partition, meter_id)
);
CREATE INDEX meters_by_merchant ON {schema}.meters (partition, merchant_id, created_at DESC, meter_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX meters_by_slug ON {schema}.meters (partition, merchant_id, meter_slug) WHERE deleted_at IS NULL;
