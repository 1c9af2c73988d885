//! Writes the rows.

use super::Batch;
use crate::writer::Writer;

pub(crate) const INSERT: &str = "INSERT INTO {schema}.secret_keys (secret_key_id, merchant_id, name, hint, created_at) \
     SELECT secret_key_id, merchant_id, name, hint, created_at \
     FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[]) \
         AS new(secret_key_id, merchant_id, name, hint, created_at)";

pub(crate) const REVOKE: &str = "UPDATE {schema}.secret_keys AS k SET revoked_at = revoked.revoked_at \
     FROM unnest($1::text[], $2::timestamptz[]) AS revoked(secret_key_id, revoked_at) \
     WHERE k.secret_key_id = revoked.secret_key_id COLLATE \"C\"";

impl Batch {
    pub(super) async fn insert(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.secret_key_id.is_empty() {
            let columns: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&self.secret_key_id, &self.merchant_id, &self.name, &self.hint, &self.created_at];
            db.execute(INSERT, &columns).await?;
        }
        Ok(())
    }

    pub(super) async fn revoke(&self, db: &mut Writer<'_>) -> Result<(), tokio_postgres::Error> {
        if !self.revoked_id.is_empty() {
            db.execute(REVOKE, &[&self.revoked_id, &self.revoked_at]).await?;
        }
        Ok(())
    }
}
