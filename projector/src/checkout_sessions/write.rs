//! Writes the rows.

use super::Batch;
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.checkout_sessions (checkout_session_id, merchant_id, \
     checkout_mode, origin_url, customer_id, reference_id, plan_id, credit_bundle_id, created_at, expires_at) \
     SELECT checkout_session_id, merchant_id, checkout_mode, origin_url, customer_id, reference_id, plan_id, \
         credit_bundle_id, created_at, expires_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
         $9::timestamptz[], $10::timestamptz[]) AS new(checkout_session_id, merchant_id, checkout_mode, origin_url, \
         customer_id, reference_id, plan_id, credit_bundle_id, created_at, expires_at)";

pub(crate) const COMPLETE: &str = "UPDATE {schema}.checkout_sessions AS s \
     SET customer_id = ended.customer_id, completed_at = ended.completed_at \
     FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS ended(checkout_session_id, customer_id, completed_at) \
     WHERE s.checkout_session_id = ended.checkout_session_id COLLATE \"C\"";

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        let new = &self.new;
        if !new.checkout_session_id.is_empty() {
            let columns: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
                &new.checkout_session_id,
                &new.merchant_id,
                &new.checkout_mode,
                &new.origin_url,
                &new.customer_id,
                &new.reference_id,
                &new.plan_id,
                &new.credit_bundle_id,
                &new.created_at,
                &new.expires_at,
            ];
            db.execute(INSERT, &columns).await?;
        }
        Ok(())
    }

    pub(super) async fn complete(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.completed.is_empty() {
            let ids: Vec<_> = self.completed.keys().collect();
            let customers: Vec<_> = self.completed.values().map(|(customer, _)| customer).collect();
            let instants: Vec<_> = self.completed.values().map(|(_, at)| at).collect();
            db.execute(COMPLETE, &[&ids, &customers, &instants]).await?;
        }
        Ok(())
    }
}
