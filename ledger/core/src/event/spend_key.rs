//! The events of spend keys, and the settings of a spend key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::kind::area;
use super::webhook::{Topic, WebhookNotice};
use crate::ids::{CustomerId, SpendKeyId, WalletId};
use crate::money::Amount;
use crate::secret::KeyHash;

area! {
    /// The events of a spend key.
    Event::SpendKey(SpendKeyEvent) {
        Created(SpendKeyCreated) = "spend_key.created",
        Rotated(KeyRotated) = "key.rotated",
        Updated(SpendKeyUpdated) = "spend_key.updated",
        Deleted(SpendKeyDeleted) = "spend_key.deleted",
    }
}

impl SpendKeyEvent {
    pub(super) fn customer_id(&self) -> Option<CustomerId> {
        match self {
            Self::Created(event) => event.customer_id,
            Self::Rotated(event) => event.customer_id,
            Self::Updated(_) | Self::Deleted(_) => None,
        }
    }

    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Created(event) => format!("{}/created", event.spend_key_id),
            Self::Rotated(event) => format!("{}/rotated/{}", event.spend_key_id, event.rotation),
            Self::Updated(event) => format!("{}/updated/{}", event.spend_key_id, event.revision),
            Self::Deleted(event) => format!("{}/deleted", event.spend_key_id),
        }
    }

    /// The webhook event that the event leads to.
    pub(super) fn webhook_notice(&self) -> Option<WebhookNotice> {
        match self {
            Self::Rotated(event) => {
                Some(WebhookNotice { topic: Topic::SpendKeyRotated, customer_id: event.customer_id })
            }
            Self::Created(_) | Self::Updated(_) | Self::Deleted(_) => None,
        }
    }
}

/// How often a spend key's limit resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cycle {
    /// Midnight UTC.
    Daily,
    /// Monday midnight UTC.
    Weekly,
    /// First of the month, UTC.
    Monthly,
    /// Never.
    Total,
}

/// At most this much money per cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SpendLimit {
    /// Dollars.
    pub amount: Amount,
    /// When it resets.
    pub cycle: Cycle,
}

/// At most this many calls per cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestLimit {
    /// Calls.
    pub count: u64,
    /// When it resets.
    pub cycle: Cycle,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RateLimit {
    /// Refill per minute.
    pub rpm: u64,
    /// Capacity.
    pub burst: u64,
}

/// The API format that a spend key's owner uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RequestShape {
    /// OpenAI-compatible.
    Openai,
    /// Anthropic.
    Anthropic,
}

/// The name and the limits of a spend key. An absent limit does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpendKeySettings {
    /// Its display name.
    pub name: String,
    /// Only these models.
    pub allowed_models: Option<Vec<String>>,
    /// Only these providers.
    pub allowed_providers: Option<Vec<String>>,
    /// Money per cycle.
    pub spend_limit: Option<SpendLimit>,
    /// Calls per cycle.
    pub request_limit: Option<RequestLimit>,
    /// Calls per minute.
    pub rate_limit: Option<RateLimit>,
    /// When the key expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// The API format that its owner uses.
    pub request_shape: Option<RequestShape>,
}

impl SpendKeySettings {
    /// The cycle of the displayed spend: that of the spend limit, or [`Cycle::Total`] without one.
    pub fn spend_cycle(&self) -> Cycle {
        self.spend_limit.map_or(Cycle::Total, |limit| limit.cycle)
    }

    /// The cycle of the displayed calls: that of the request limit, or [`Cycle::Total`] without one.
    pub fn request_cycle(&self) -> Cycle {
        self.request_limit.map_or(Cycle::Total, |limit| limit.cycle)
    }
}

/// Whether a spend key is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SpendKeyStatus {
    /// Usable.
    #[default]
    Active,
    /// Temporarily not usable.
    Paused,
}

impl SpendKeyStatus {
    /// The status of a new key unless another is asked for.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    pub(crate) fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

/// A spend key was created, with status `active`. One that was asked to be paused is updated in the same append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKeyCreated {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// The wallet it spends from.
    pub wallet_id: WalletId,
    /// The customer whose wallet that is; `None` if it is the merchant's own.
    pub customer_id: Option<CustomerId>,
    /// The keyed hash of the raw key.
    pub key_hash: KeyHash,
    /// The part of the raw key that may be shown.
    pub key_preview: String,
    /// Its name and limits.
    #[serde(flatten)]
    pub settings: SpendKeySettings,
}

/// A spend key's raw key was replaced. The old one is invalid from this position on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRotated {
    /// The key's id, which stays.
    pub spend_key_id: SpendKeyId,
    /// The customer whose wallet it spends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<CustomerId>,
    /// Counts the rotations of this key, from 1.
    pub rotation: u32,
    /// The hash that is invalid now.
    pub old_key_hash: KeyHash,
    /// The keyed hash of the new raw key.
    pub key_hash: KeyHash,
    /// The part of the new raw key that may be shown.
    pub key_preview: String,
}

/// A spend key's settings or status were changed. The event holds all new values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKeyUpdated {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// Counts the updates of this key, from 1.
    pub revision: u32,
    /// Its status.
    pub status: SpendKeyStatus,
    /// Its name and limits.
    #[serde(flatten)]
    pub settings: SpendKeySettings,
}

/// A spend key was deleted: it is invalid from this position on. Its calls in flight still settle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendKeyDeleted {
    /// The key's id.
    pub spend_key_id: SpendKeyId,
    /// The hash that is invalid now.
    pub key_hash: KeyHash,
}
