//! `DeleteWebhook`: deletes a webhook. It receives no event from the append on.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::refusal::WebhookRefusal;
use crate::event::{Event, WebhookDeleted};
use crate::ids::{MerchantId, WebhookId};
use crate::state::StateCache;

/// Deletes a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteWebhook {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The webhook.
    pub webhook_id: WebhookId,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for DeleteWebhook {
    type Outcome = ();

    fn decide(&self, states: &StateCache) -> Result<Decision<()>, DecideError> {
        let webhook = states.webhook(self.webhook_id)?;
        webhook.filter(|webhook| webhook.merchant_id == self.merchant_id).ok_or(WebhookRefusal::NotFound)?;
        let event = Event::from(WebhookDeleted { webhook_id: self.webhook_id });
        Ok(Decision::append(self.merchant_id, self.now, vec![event], ()))
    }
}
