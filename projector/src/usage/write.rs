//! Adds to the rows.

use tokio_postgres::types::ToSql;

use super::fold::Batch;
use crate::column::Numeric;
use crate::writer::Writer;

pub(crate) const ADD_UP: &str = "INSERT INTO {schema}.quarters AS q \
         (merchant_id, customer_id, meter_id, starts_at, requests, tokens, model_cost, fee_amount, \
          service_charge_amount, total_request_cost, total_wallet_cost, total_merchant_cost) \
     SELECT merchant_id, customer_id, meter_id, starts_at, requests, tokens, model_cost, fee_amount, \
            service_charge_amount, total_request_cost, total_wallet_cost, total_merchant_cost \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bigint[], $6::numeric[], \
                 $7::numeric[], $8::numeric[], $9::numeric[], $10::numeric[], $11::numeric[], $12::numeric[]) \
         AS new(merchant_id, customer_id, meter_id, starts_at, requests, tokens, model_cost, fee_amount, \
                service_charge_amount, total_request_cost, total_wallet_cost, total_merchant_cost) \
     ON CONFLICT (merchant_id, customer_id, meter_id, starts_at) DO UPDATE SET \
         requests = q.requests + excluded.requests, \
         tokens = q.tokens + excluded.tokens, \
         model_cost = q.model_cost + excluded.model_cost, \
         fee_amount = q.fee_amount + excluded.fee_amount, \
         service_charge_amount = q.service_charge_amount + excluded.service_charge_amount, \
         total_request_cost = q.total_request_cost + excluded.total_request_cost, \
         total_wallet_cost = q.total_wallet_cost + excluded.total_wallet_cost, \
         total_merchant_cost = q.total_merchant_cost + excluded.total_merchant_cost";

impl Batch {
    pub(super) async fn add_up(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        let text = |id: Option<String>| id.unwrap_or_default();
        let scopes = || self.rows.keys();
        let merchants: Vec<_> = scopes().map(|scope| scope.merchant_id.to_string()).collect();
        let customers: Vec<_> =
            scopes().map(|scope| text(scope.customer_id.map(|id| id.to_string()))).collect();
        let meters: Vec<_> = scopes().map(|scope| text(scope.meter_id.map(|id| id.to_string()))).collect();
        let starts: Vec<_> = scopes().map(|scope| scope.starts_at).collect();
        let requests: Vec<_> = self.rows.values().map(|sum| sum.requests).collect();
        let (mut tokens, mut model_cost, mut fee) = (Vec::new(), Vec::new(), Vec::new());
        let (mut service_charge, mut total) = (Vec::new(), Vec::new());
        let (mut wallet, mut merchant) = (Vec::new(), Vec::new());
        for sum in self.rows.values() {
            tokens.push(Numeric(sum.tokens));
            model_cost.push(Numeric(sum.model_cost));
            fee.push(Numeric(sum.fee_amount));
            service_charge.push(Numeric(sum.service_charge_amount));
            total.push(Numeric(sum.total_request_cost));
            wallet.push(Numeric(sum.total_wallet_cost));
            merchant.push(Numeric(sum.total_merchant_cost));
        }
        let columns: [&(dyn ToSql + Sync); 12] = [
            &merchants,
            &customers,
            &meters,
            &starts,
            &requests,
            &tokens,
            &model_cost,
            &fee,
            &service_charge,
            &total,
            &wallet,
            &merchant,
        ];
        db.execute(ADD_UP, &columns).await.map(|_| ())
    }
}
