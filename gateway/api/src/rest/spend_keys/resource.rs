//! The Spend key resource.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use chrono::{DateTime, Utc};
use farthing_core::command::SpendKeySnapshot;
use farthing_core::event::{Cycle, RateLimit, RequestLimit, RequestShape, SpendKeyStatus, SpendLimit};
use farthing_core::ids::{CustomerId, SpendKeyId, WalletId};
use farthing_core::money::Amount;
use farthing_core::secret::RawKey;
use farthing_projector::spend_keys::query::SpendKeyRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;

/// A spend key.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::rest) struct SpendKey {
    spend_key_id: SpendKeyId,
    key_preview: String,
    name: String,
    status: SpendKeyStatus,
    wallet_id: WalletId,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_id: Option<CustomerId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer_id: Option<CustomerId>,
    current_spend: Amount,
    current_requests: u64,
    total_spend: Amount,
    total_requests: u64,
    allowed_models: Option<Vec<String>>,
    allowed_providers: Option<Vec<String>>,
    spend_limit: Option<SpendLimit>,
    request_limit: Option<RequestLimit>,
    rate_limit: Option<RateLimit>,
    request_shape: RequestShape,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    created_at: Timestamp,
    /// The raw key. Only the response that created it has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl SpendKey {
    /// The key after a command, with its cycles at the instant `now`.
    pub(super) fn new(spend_key_id: SpendKeyId, made: SpendKeySnapshot, now: DateTime<Utc>) -> Self {
        let SpendKeySnapshot { key, spending } = made;
        let at = spending.instant(now);
        let current_spend = spending.window(key.settings.spend_cycle(), at).spent;
        let current_requests = spending.window(key.settings.request_cycle(), at).requests;
        let total = spending.window(Cycle::Total, at);
        let settings = key.settings;
        Self {
            spend_key_id,
            key_preview: key.key_preview,
            name: settings.name,
            status: key.status,
            wallet_id: key.wallet_id,
            connection_id: key.customer_id,
            customer_id: key.customer_id,
            current_spend,
            current_requests,
            total_spend: total.spent,
            total_requests: total.requests,
            allowed_models: settings.allowed_models,
            allowed_providers: settings.allowed_providers,
            spend_limit: settings.spend_limit,
            request_limit: settings.request_limit,
            rate_limit: settings.rate_limit,
            request_shape: settings.request_shape.unwrap_or(RequestShape::Openai),
            expires_at: settings.expires_at.map(Timestamp),
            last_used_at: spending.last_used_at.map(Timestamp),
            created_at: Timestamp(key.created_at),
            key: None,
        }
    }

    /// The key with its new raw key, which is shown only once.
    pub(super) fn with_raw(self, raw: &RawKey) -> Self {
        Self { key: Some(raw.reveal().to_owned()), ..self }
    }
}

impl From<SpendKeyRow> for SpendKey {
    fn from(row: SpendKeyRow) -> Self {
        let settings = row.settings;
        Self {
            spend_key_id: row.spend_key_id,
            key_preview: row.key_preview,
            name: settings.name,
            status: row.status,
            wallet_id: row.wallet_id,
            connection_id: row.connection_id,
            customer_id: row.connection_id,
            current_spend: row.current_spend,
            current_requests: u64::try_from(row.current_requests).unwrap_or(0),
            total_spend: row.total_spend,
            total_requests: u64::try_from(row.total_requests).unwrap_or(0),
            allowed_models: settings.allowed_models,
            allowed_providers: settings.allowed_providers,
            spend_limit: settings.spend_limit,
            request_limit: settings.request_limit,
            rate_limit: settings.rate_limit,
            request_shape: settings.request_shape.unwrap_or(RequestShape::Openai),
            expires_at: settings.expires_at.map(Timestamp),
            last_used_at: row.last_used_at.map(Timestamp),
            created_at: Timestamp(row.created_at),
            key: None,
        }
    }
}
