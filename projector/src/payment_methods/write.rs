//! Writes the rows.

use super::Batch;
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.payment_methods \
         (payment_method_id, merchant_id, customer_id, brand, last4, exp_month, exp_year, created_at) \
     SELECT payment_method_id, merchant_id, customer_id, brand, last4, exp_month, exp_year, created_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int2[], $7::int2[], $8::timestamptz[]) \
         AS new(payment_method_id, merchant_id, customer_id, brand, last4, exp_month, exp_year, created_at)";

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.payment_method_id.is_empty() {
            return Ok(());
        }
        let columns: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [
            &self.payment_method_id,
            &self.merchant_id,
            &self.customer_id,
            &self.brand,
            &self.last4,
            &self.exp_month,
            &self.exp_year,
            &self.created_at,
        ];
        db.execute(INSERT, &columns).await?;
        Ok(())
    }
}
