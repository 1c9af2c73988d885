-- Plans and their credit bundles, as GET /plans and GET /credit_bundles show them; terms and offers are JSON text.
-- Deleted ones keep their rows, so that a list cursor on them stays valid.

CREATE TABLE {schema}.plans (
    partition   smallint NOT NULL,
    plan_id     text COLLATE "C" NOT NULL,
    merchant_id text COLLATE "C" NOT NULL,
    terms       text        NOT NULL,
    created_at  timestamptz NOT NULL,
    deleted_at  timestamptz,
    PRIMARY KEY (partition, plan_id)
);
CREATE INDEX plans_by_merchant ON {schema}.plans (partition, merchant_id, created_at DESC, plan_id DESC)
    WHERE deleted_at IS NULL;

CREATE TABLE {schema}.credit_bundles (
    partition        smallint NOT NULL,
    credit_bundle_id text COLLATE "C" NOT NULL,
    merchant_id      text COLLATE "C" NOT NULL,
    plan_id          text COLLATE "C" NOT NULL,
    offer            text        NOT NULL,
    created_at       timestamptz NOT NULL,
    deleted_at       timestamptz,
    PRIMARY KEY (partition, credit_bundle_id)
);
CREATE INDEX credit_bundles_by_merchant
    ON {schema}.credit_bundles (partition, merchant_id, created_at DESC, credit_bundle_id DESC)
    WHERE deleted_at IS NULL;
CREATE INDEX credit_bundles_by_plan
    ON {schema}.credit_bundles (partition, merchant_id, plan_id, created_at DESC, credit_bundle_id DESC)
    WHERE deleted_at IS NULL;

-- The slugs of the existing meters; a plan names its meters by id.
CREATE TABLE {schema}.meter_slugs (
    partition  smallint NOT NULL,
    meter_id   text COLLATE "C" NOT NULL,
    meter_slug text COLLATE "C" NOT NULL,
    PRIMARY KEY (partition, meter_id)
);
