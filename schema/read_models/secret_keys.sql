-- Secret keys, as GET /secret_keys shows them. Revoked keys keep their rows, so that a list cursor on them stays valid.

CREATE TABLE {schema}.secret_keys (
    partition     smallint NOT NULL,
    secret_key_id text COLLATE "C" NOT NULL,
    merchant_id   text COLLATE "C" NOT NULL,
    name          text        NOT NULL,
    hint          text        NOT NULL,
    created_at    timestamptz NOT NULL,
    revoked_at    timestamptz,
    PRIMARY KEY (partition, secret_key_id)
);
CREATE INDEX secret_keys_by_merchant
    ON {schema}.secret_keys (partition, merchant_id, created_at DESC, secret_key_id DESC);
