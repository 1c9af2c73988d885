-- The journal: where each merchant's events are in its partition, and the balances of its double-entry accounts. A block is
-- 256 positions; a row has the events of one merchant in it. So a page of a merchant's events reads no other merchant's,
-- and the accounts at a position are a row and the events after it in one block.
--
-- `events` has two bytes for each event, in their order: its place in the block, and the number of its kind. A bit of
-- `kinds` is set for each kind. Times are microseconds of Unix time. `latest_us` is the time of the latest event until the
-- end of the block, and `late_us` says by how much any event until there occurred before one that precedes it: decisions of
-- several gateways are appended nearly in the order of their time. The accounts are as of the last event of the block. They
-- add up to zero, unless an event's own figures do not: then they show the difference, and the projector raises an alarm. A
-- CHECK would stop the read model for all merchants instead.
--
-- The row of a block is updated with each append of its merchant until the block is full. Only the primary keys are indexed,
-- and pages leave room, so that these are HOT updates.

CREATE TABLE {schema}.blocks (
    partition          smallint NOT NULL,
    merchant_id        text COLLATE "C" NOT NULL,
    block              bigint NOT NULL,
    events             bytea  NOT NULL,
    kinds              bigint NOT NULL,
    first_us           bigint NOT NULL,
    last_us            bigint NOT NULL,
    latest_us          bigint NOT NULL,
    late_us            bigint NOT NULL,
    customer_balances  numeric(38, 10) NOT NULL,
    plan_credit        numeric(38, 10) NOT NULL,
    bundle_credit      numeric(38, 10) NOT NULL,
    merchant_wallets   numeric(38, 10) NOT NULL,
    payments_received  numeric(38, 10) NOT NULL,
    refunds            numeric(38, 10) NOT NULL,
    manual_credits     numeric(38, 10) NOT NULL,
    plan_revenue       numeric(38, 10) NOT NULL,
    expired_credit     numeric(38, 10) NOT NULL,
    provider_cost      numeric(38, 10) NOT NULL,
    fee_revenue        numeric(38, 10) NOT NULL,
    service_charge     numeric(38, 10) NOT NULL,
    payments_clearing  numeric(38, 10) NOT NULL,
    calls_clearing     numeric(38, 10) NOT NULL,
    PRIMARY KEY (partition, merchant_id, block)
) WITH (fillfactor = 70);

-- The same for the events about each customer.
CREATE TABLE {schema}.customer_blocks (
    partition   smallint NOT NULL,
    merchant_id text COLLATE "C" NOT NULL,
    customer_id text COLLATE "C" NOT NULL,
    block       bigint NOT NULL,
    events      bytea  NOT NULL,
    kinds       bigint NOT NULL,
    PRIMARY KEY (partition, merchant_id, customer_id, block)
) WITH (fillfactor = 70);

-- The books of each merchant after its last event. They change often, so pages leave room for HOT updates.
CREATE TABLE {schema}.books (
    partition          smallint NOT NULL,
    merchant_id        text COLLATE "C" NOT NULL,
    latest_us          bigint NOT NULL,
    late_us            bigint NOT NULL,
    customer_balances  numeric(38, 10) NOT NULL,
    plan_credit        numeric(38, 10) NOT NULL,
    bundle_credit      numeric(38, 10) NOT NULL,
    merchant_wallets   numeric(38, 10) NOT NULL,
    payments_received  numeric(38, 10) NOT NULL,
    refunds            numeric(38, 10) NOT NULL,
    manual_credits     numeric(38, 10) NOT NULL,
    plan_revenue       numeric(38, 10) NOT NULL,
    expired_credit     numeric(38, 10) NOT NULL,
    provider_cost      numeric(38, 10) NOT NULL,
    fee_revenue        numeric(38, 10) NOT NULL,
    service_charge     numeric(38, 10) NOT NULL,
    payments_clearing  numeric(38, 10) NOT NULL,
    calls_clearing     numeric(38, 10) NOT NULL,
    PRIMARY KEY (partition, merchant_id)
) WITH (fillfactor = 20);
