//! Writes the rows.

use tokio_postgres::types::ToSql;

use super::Batch;
use super::fold::{Current, Reference};
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.customers \
         (customer_id, merchant_id, wallet_id, reference_id, metadata, created_at, deleted_at, subscription) \
     SELECT customer_id, merchant_id, wallet_id, reference_id, metadata, created_at, deleted_at, subscription \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[], \
                 $8::text[]) \
         AS new(customer_id, merchant_id, wallet_id, reference_id, metadata, created_at, deleted_at, subscription)";

pub(crate) const UPDATE: &str = "UPDATE {schema}.customers AS c \
     SET reference_id = CASE WHEN changed.renamed THEN changed.reference_id ELSE c.reference_id END, \
         metadata = COALESCE(changed.metadata, c.metadata), \
         deleted_at = COALESCE(changed.deleted_at, c.deleted_at), \
         subscription = CASE WHEN changed.subscribed THEN changed.subscription ELSE c.subscription END \
     FROM unnest($1::text[], $2::boolean[], $3::text[], $4::text[], $5::timestamptz[], $6::boolean[], $7::text[]) \
         AS changed(customer_id, renamed, reference_id, metadata, deleted_at, subscribed, subscription) \
     WHERE c.customer_id = changed.customer_id COLLATE \"C\"";

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.new.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.new.keys().map(ToString::to_string).collect();
        let rows = || self.new.values();
        let merchants: Vec<&str> = rows().map(|row| row.merchant_id.as_str()).collect();
        let wallets: Vec<&str> = rows().map(|row| row.wallet_id.as_str()).collect();
        let references: Vec<_> = rows().map(|row| row.reference_id.as_deref()).collect();
        let metadata: Vec<&str> = rows().map(|row| row.metadata.as_str()).collect();
        let created: Vec<_> = rows().map(|row| row.created_at).collect();
        let deleted: Vec<_> = rows().map(|row| row.deleted_at).collect();
        let subscriptions: Vec<_> = rows().map(|row| row.subscription.as_deref()).collect();
        let columns: [&(dyn ToSql + Sync); 8] =
            [&ids, &merchants, &wallets, &references, &metadata, &created, &deleted, &subscriptions];
        db.execute(INSERT, &columns).await?;
        Ok(())
    }

    pub(super) async fn update_rows(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = self.changed.keys().map(ToString::to_string).collect();
        let rows = || self.changed.values();
        let renamed: Vec<bool> = rows().map(|row| row.reference_id.is_some()).collect();
        let references: Vec<Option<&str>> =
            rows().map(|row| row.reference_id.as_ref().and_then(|Reference(id)| id.as_deref())).collect();
        let metadata: Vec<_> = rows().map(|row| row.metadata.as_deref()).collect();
        let deleted: Vec<_> = rows().map(|row| row.deleted_at).collect();
        let subscribed: Vec<bool> = rows().map(|row| row.subscription.is_some()).collect();
        let subscriptions: Vec<Option<&str>> =
            rows().map(|row| row.subscription.as_ref().and_then(|Current(text)| text.as_deref())).collect();
        let columns: [&(dyn ToSql + Sync); 7] =
            [&ids, &renamed, &references, &metadata, &deleted, &subscribed, &subscriptions];
        db.execute(UPDATE, &columns).await?;
        Ok(())
    }
}
