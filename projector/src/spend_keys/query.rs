//! Finds spend keys.

use chrono::{DateTime, Utc};
use farthing_ledger::event::SpendKeySettings;
use farthing_ledger::ids::{CustomerId, MerchantId, SpendKeyId, WalletId};
use farthing_ledger::money::Amount;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Parameter};

/// Does a spend key work?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It does.
    Active,
    /// Not for now.
    Paused,
}

/// A spend key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendKeyRow {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// The wallet it spends from.
    pub wallet_id: WalletId,
    /// The customer whose wallet that is; none for the merchant's own.
    pub connection_id: Option<CustomerId>,
    /// What may be shown of the raw key.
    pub key_preview: String,
    /// Does it work?
    pub status: Status,
    /// Name and limits.
    pub settings: SpendKeySettings,
    /// Spent in the current cycle.
    pub current_spend: Amount,
    /// Calls in the current cycle.
    pub current_requests: i64,
    /// Spent ever.
    pub total_spend: Amount,
    /// Calls ever.
    pub total_requests: i64,
    /// When it came to be.
    pub created_at: DateTime<Utc>,
    /// When it was used last.
    pub last_used_at: Option<DateTime<Utc>>,
}

impl SpendKeyRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            spend_key_id: columns.id()?,
            wallet_id: columns.id()?,
            connection_id: columns.id_or_null()?,
            key_preview: columns.plain()?,
            status: columns.word()?,
            settings: columns.json()?,
            current_spend: columns.amount()?,
            current_requests: columns.plain()?,
            total_spend: columns.amount()?,
            total_requests: columns.plain()?,
            created_at: columns.plain()?,
            last_used_at: columns.plain()?,
        })
    }
}

/// A merchant's spend key by id.
pub const FIND: &str = "SELECT spend_key_id, wallet_id, connection_id, key_preview, status, settings, current_spend, \
            current_requests, total_spend, total_requests, created_at, last_used_at \
     FROM spend_keys.spend_keys WHERE spend_key_id = $2 AND merchant_id = $1";

/// The merchant's spend key `id`.
pub async fn find(
    db: &Client,
    merchant_id: MerchantId,
    id: SpendKeyId,
) -> Result<Option<SpendKeyRow>, Error> {
    let parameters: [Parameter<'_>; 2] =
        [(&merchant_id.to_string(), Type::TEXT), (&id.to_string(), Type::TEXT)];
    let row = db.query_typed(FIND, &parameters).await?.into_iter().next();
    Ok(row.map(|row| SpendKeyRow::read(&mut Columns::of(&row))).transpose()?)
}
