//! The state of a webhook.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::WebhookSettings;
use crate::ids::MerchantId;

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// Its URL and topics.
    pub settings: WebhookSettings,
    /// The number of its changes.
    pub revision: u32,
    /// When it was created.
    pub created_at: DateTime<Utc>,
}
