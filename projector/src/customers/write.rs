//! Writes the rows.

use super::Batch;
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.customers (customer_id, merchant_id, wallet_id, reference_id, metadata, created_at) \
     SELECT customer_id, merchant_id, wallet_id, reference_id, metadata, created_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[]) \
         AS new(customer_id, merchant_id, wallet_id, reference_id, metadata, created_at)";

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        db.execute(
            INSERT,
            &[
                &self.customer_id,
                &self.merchant_id,
                &self.wallet_id,
                &self.reference_id,
                &self.metadata,
                &self.created_at,
            ],
        )
        .await?;
        Ok(())
    }
}
