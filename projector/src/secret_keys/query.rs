//! Lists the active secret keys.

use chrono::{DateTime, Utc};
use farthing_core::ids::{MerchantId, SecretKeyId};

use crate::query::{self, Error, Listed, Page, PartitionClient, text};
use crate::row::row;

row! {
    /// A secret key.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SecretKeyRow {
        /// The key's id.
        pub secret_key_id: SecretKeyId = id,
        /// Its name.
        pub name: String = plain,
        /// The last four characters of the raw key.
        pub hint: String = plain,
        /// When it was issued.
        pub created_at: DateTime<Utc> = plain,
    }
}

/// A merchant's active keys, newest first.
pub const LIST: &str = "SELECT secret_key_id, name, hint, created_at FROM {secret_keys}.secret_keys \
     WHERE partition = $1 AND merchant_id = $2 AND revoked_at IS NULL \
       AND (created_at, secret_key_id) < (COALESCE($3::timestamptz, 'infinity'), $4) \
     ORDER BY created_at DESC, secret_key_id DESC LIMIT $5";

/// The key of a cursor. A revoked one keeps its place in the list.
pub const CURSOR: &str = "SELECT created_at AS at FROM {secret_keys}.secret_keys WHERE partition = $1 AND merchant_id = $2 AND secret_key_id = $3";

/// The merchant's active keys, newest first.
pub async fn list(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<Listed<SecretKeyRow>, Error> {
    let merchant = merchant_id.to_string();
    let start = page.start::<SecretKeyId>(db, CURSOR, &merchant).await?;
    query::list(db, LIST, &[text(&merchant)], &start, page).await
}
