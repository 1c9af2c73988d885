-- Usage: the sums of a merchant's calls per quarter of an hour (UTC) in which they were opened. Every UTC offset in
-- use is a multiple of a quarter, so a day in any time zone is a sum of rows. A call counts in up to four rows: all
-- calls, its customer, its meter, and both; '' means any customer or any meter. So each query reads one range of the
-- primary key.

CREATE TABLE {schema}.quarters (
    partition             smallint NOT NULL,
    merchant_id           text COLLATE "C" NOT NULL,
    customer_id           text COLLATE "C" NOT NULL,
    meter_id              text COLLATE "C" NOT NULL,
    starts_at             timestamptz      NOT NULL,
    requests              bigint           NOT NULL,
    tokens                numeric          NOT NULL,
    model_cost            numeric(38, 10)  NOT NULL,
    fee_amount            numeric(38, 10)  NOT NULL,
    service_charge_amount numeric(38, 10)  NOT NULL,
    total_request_cost    numeric(38, 10)  NOT NULL CHECK (total_request_cost = total_wallet_cost + total_merchant_cost),
    total_wallet_cost     numeric(38, 10)  NOT NULL,
    total_merchant_cost   numeric(38, 10)  NOT NULL,
    PRIMARY KEY (partition, merchant_id, customer_id, meter_id, starts_at)
) WITH (fillfactor = 50);
