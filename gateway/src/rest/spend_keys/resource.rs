//! The Spend key resource.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use chrono::{DateTime, Utc};
use farthing_ledger::event::{RateLimit, RequestLimit, RequestShape, SpendKeySettings, SpendLimit};
use farthing_ledger::ids::{CustomerId, SpendKeyId, WalletId};
use farthing_ledger::money::Amount;
use farthing_ledger::secret::RawKey;
use farthing_ledger::state;
use farthing_projector::spend_keys::query::{SpendKeyRow, Status};
use serde::Serialize;

use crate::rest::body::Timestamp;

/// A spend key as it is shown.
#[derive(Debug, Serialize)]
pub(in crate::rest) struct SpendKey {
    spend_key_id: SpendKeyId,
    key_preview: String,
    name: String,
    status: Status,
    wallet_id: WalletId,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_id: Option<CustomerId>,
    current_spend: Amount,
    current_requests: i64,
    total_spend: Amount,
    total_requests: i64,
    allowed_models: Option<Vec<String>>,
    allowed_providers: Option<Vec<String>>,
    spend_limit: Option<SpendLimit>,
    request_limit: Option<RequestLimit>,
    rate_limit: Option<RateLimit>,
    request_shape: Option<RequestShape>,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    created_at: Timestamp,
    /// The raw key: only in the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl SpendKey {
    /// A key that has never been used.
    pub(super) fn unused(
        spend_key_id: SpendKeyId,
        wallet_id: WalletId,
        customer_id: Option<CustomerId>,
        settings: SpendKeySettings,
        created_at: DateTime<Utc>,
    ) -> Self {
        Self {
            spend_key_id,
            key_preview: String::new(),
            name: settings.name,
            status: Status::Active,
            wallet_id,
            connection_id: customer_id,
            customer_id,
            current_spend: Amount::ZERO,
            current_requests: 0,
            total_spend: Amount::ZERO,
            total_requests: 0,
            allowed_models: settings.allowed_models,
            allowed_providers: settings.allowed_providers,
            spend_limit: settings.spend_limit,
            request_limit: settings.request_limit,
            rate_limit: settings.rate_limit,
            request_shape: settings.request_shape,
            expires_at: settings.expires_at.map(Timestamp),
            last_used_at: None,
            created_at: Timestamp(created_at),
            key: None,
        }
    }

    /// The key as its state has it, for a read model that lags; an id tells when it was made.
    pub(super) fn of_state(id: SpendKeyId, state: state::SpendKey) -> Self {
        Self::unused(id, state.wallet_id, state.customer_id, state.settings, id.made_at())
    }

    /// The key with the raw key just made for it, which is shown this once.
    pub(super) fn with_raw(self, raw: &RawKey) -> Self {
        Self { key_preview: raw.preview(), key: Some(raw.reveal().to_owned()), ..self }
    }
}

impl From<SpendKeyRow> for SpendKey {
    fn from(row: SpendKeyRow) -> Self {
        let unused =
            Self::unused(row.spend_key_id, row.wallet_id, row.connection_id, row.settings, row.created_at);
        Self {
            key_preview: row.key_preview,
            status: row.status,
            current_spend: row.current_spend,
            current_requests: row.current_requests,
            total_spend: row.total_spend,
            total_requests: row.total_requests,
            last_used_at: row.last_used_at.map(Timestamp),
            ..unused
        }
    }
}
