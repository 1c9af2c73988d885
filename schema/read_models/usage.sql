-- Usage: what a merchant's calls come to, summed by the quarter of an hour (UTC) in which they were opened; every UTC
-- offset in use is a multiple of a quarter, so days of any of them are sums of rows. A call stands in up to four rows:
-- of all calls, of its customer, of its meter, of both; '' is any customer, any meter. So each question reads one range
-- of the primary key.

CREATE TABLE {schema}.quarters (
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
    PRIMARY KEY (merchant_id, customer_id, meter_id, starts_at)
) WITH (fillfactor = 50);
