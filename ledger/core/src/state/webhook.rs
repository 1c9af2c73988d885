//! The state of a webhook.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::WebhookSettings;
use crate::ids::MerchantId;

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Whose it is.
    pub merchant_id: MerchantId,
    /// Where it is, and what it is told of.
    pub settings: WebhookSettings,
    /// Its changes so far.
    pub revision: u32,
    /// When it came to be.
    pub created_at: DateTime<Utc>,
}
