//! Adds to the sums.

use farthing_core::partition::Partition;
use farthing_core::wide_sum::WideSum;
use rust_decimal::Decimal;

use super::Counters;
use super::fold::{Scope, UsageBatch};
use crate::writer::{WriteRows, Writer, unnest_rows};

unnest_rows! {
    ADD_UP, add_up<'a>,
    ["INSERT INTO {schema}.quarters AS q (" (columns) ") SELECT " (columns) " FROM " (rows as new)
     " ON CONFLICT (partition, merchant_id, customer_id, meter_id, starts_at) DO UPDATE SET \
          requests = q.requests + excluded.requests, \
          tokens = q.tokens + excluded.tokens, \
          model_cost = q.model_cost + excluded.model_cost, \
          fee_amount = q.fee_amount + excluded.fee_amount, \
          service_charge_amount = q.service_charge_amount + excluded.service_charge_amount, \
          total_request_cost = q.total_request_cost + excluded.total_request_cost, \
          total_wallet_cost = q.total_wallet_cost + excluded.total_wallet_cost, \
          total_merchant_cost = q.total_merchant_cost + excluded.total_merchant_cost"],
    for (scope, sum) in (&'a Scope, &'a Counters) => {
        merchant_id: text = scope.merchant_id.to_string(),
        customer_id: text = scope.customer_id.map(|id| id.to_string()).unwrap_or_default(),
        meter_id: text = scope.meter_id.map(|id| id.to_string()).unwrap_or_default(),
        starts_at: timestamptz = scope.starts_at,
        requests: int8 = sum.requests,
        tokens: numeric = sum.tokens,
        model_cost: numeric = decimal(sum.model_cost),
        fee_amount: numeric = decimal(sum.fee_amount),
        service_charge_amount: numeric = decimal(sum.service_charge_amount),
        total_request_cost: numeric = decimal(sum.total_request_cost),
        total_wallet_cost: numeric = decimal(sum.total_wallet_cost),
        total_merchant_cost: numeric = decimal(sum.total_merchant_cost),
    }
}

impl WriteRows for UsageBatch {
    async fn write_rows(batches: &[(Partition, Self)], db: &Writer<'_>) -> Result<(), tokio_postgres::Error> {
        add_up(db, batches, |batch| batch.rows.iter()).await
    }
}

fn decimal(sum: WideSum) -> Decimal {
    // A batch has a few thousand events of at most 10^12 dollars each.
    sum.decimal().expect("the sums of a batch have less than 28 digits")
}
