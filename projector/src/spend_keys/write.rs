//! Writes the rows.

use super::Batch;
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.spend_keys \
         (spend_key_id, merchant_id, wallet_id, connection_id, key_preview, rotation, status, settings, \
          current_spend, current_requests, total_spend, total_requests, created_at) \
     SELECT spend_key_id, merchant_id, wallet_id, connection_id, key_preview, 0, 'active', settings, \
            0, 0, 0, 0, created_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[]) \
         AS new(spend_key_id, merchant_id, wallet_id, connection_id, key_preview, settings, created_at)";

pub(crate) const ROTATE: &str = "UPDATE {schema}.spend_keys AS k SET key_preview = rotated.key_preview, rotation = rotated.rotation \
     FROM unnest($1::text[], $2::text[], $3::integer[]) AS rotated(spend_key_id, key_preview, rotation) \
     WHERE k.spend_key_id = rotated.spend_key_id COLLATE \"C\"";

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.spend_key_id.is_empty() {
            db.execute(
                INSERT,
                &[
                    &self.spend_key_id,
                    &self.merchant_id,
                    &self.wallet_id,
                    &self.connection_id,
                    &self.key_preview,
                    &self.settings,
                    &self.created_at,
                ],
            )
            .await?;
        }
        Ok(())
    }

    pub(super) async fn rotate(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.rotated.is_empty() {
            let ids: Vec<String> = self.rotated.keys().map(ToString::to_string).collect();
            let previews: Vec<&str> = self.rotated.values().map(|key| key.key_preview.as_str()).collect();
            let rotations: Vec<i32> = self.rotated.values().map(|key| key.rotation).collect();
            db.execute(ROTATE, &[&ids, &previews, &rotations]).await?;
        }
        Ok(())
    }
}
