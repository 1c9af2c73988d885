//! Lists the secret keys that are good.

use chrono::{DateTime, Utc};
use farthing_core::ids::{MerchantId, SecretKeyId};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Listed, Page, Parameter};

/// A secret key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretKeyRow {
    /// The key's id.
    pub secret_key_id: SecretKeyId,
    /// What it is called.
    pub name: String,
    /// The last four characters of the raw key.
    pub hint: String,
    /// When it was issued.
    pub created_at: DateTime<Utc>,
}

impl SecretKeyRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            secret_key_id: columns.id()?,
            name: columns.plain()?,
            hint: columns.plain()?,
            created_at: columns.plain()?,
        })
    }
}

/// A merchant's good keys after a place in the list; the first page starts at `infinity`.
pub const LIST: &str = "SELECT secret_key_id, name, hint, created_at FROM secret_keys.secret_keys \
     WHERE merchant_id = $1 AND revoked_at IS NULL \
       AND (created_at, secret_key_id) < (COALESCE($2::timestamptz, 'infinity'), $3) \
     ORDER BY created_at DESC, secret_key_id DESC LIMIT $4";

/// When the key of a cursor was issued; it may have been revoked since.
pub const CURSOR: &str =
    "SELECT created_at FROM secret_keys.secret_keys WHERE merchant_id = $1 AND secret_key_id = $2";

/// The merchant's good keys, newest first.
pub async fn list(
    db: &Client,
    merchant_id: MerchantId,
    page: Page<'_>,
) -> Result<Listed<SecretKeyRow>, Error> {
    let merchant = merchant_id.to_string();
    let (after, id) = match page.cursor {
        None => (None, String::new()),
        Some(cursor) => {
            let id = cursor.parse::<SecretKeyId>().map_err(|_| Error::CursorInvalid)?.to_string();
            let parameters: [Parameter<'_>; 2] = [(&merchant, Type::TEXT), (&id, Type::TEXT)];
            let row = db.query_typed(CURSOR, &parameters).await?.into_iter().next();
            (Some(row.ok_or(Error::CursorInvalid)?.try_get::<_, DateTime<Utc>>(0)?), id)
        }
    };
    let limit = page.rows_to_ask();
    let parameters: [Parameter<'_>; 4] =
        [(&merchant, Type::TEXT), (&after, Type::TIMESTAMPTZ), (&id, Type::TEXT), (&limit, Type::INT8)];
    let rows = db.query_typed(LIST, &parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| SecretKeyRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}
