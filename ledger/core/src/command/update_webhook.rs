//! `UpdateWebhook`: changes the URL or the topics of a webhook, or pauses it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::decision::{Command, DecideError, Decision};
use super::edit::Edit;
use super::refusal::WebhookRefusal;
use crate::event::{Event, Topic, WebhookSettings, WebhookUpdated};
use crate::ids::{MerchantId, WebhookId};
use crate::state::{StateCache, Webhook};

/// Changes the fields of a webhook that are present and returns the webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateWebhook {
    /// The merchant.
    pub merchant_id: MerchantId,
    /// The webhook.
    pub webhook_id: WebhookId,
    /// Its display name.
    #[serde(default, skip_serializing_if = "Edit::is_keep")]
    pub name: Edit<String>,
    /// Its URL.
    pub url: Option<String>,
    /// Its topics; cleared for all topics.
    pub topics: Edit<Vec<Topic>>,
    /// Enables or disables delivery.
    pub enabled: Option<bool>,
    /// The current time, to the millisecond.
    pub now: DateTime<Utc>,
}

impl Command for UpdateWebhook {
    type Outcome = Box<Webhook>;

    fn decide(&self, states: &StateCache) -> Result<Decision<Box<Webhook>>, DecideError> {
        let webhook = states.webhook(self.webhook_id)?;
        let webhook = webhook.filter(|webhook| webhook.merchant_id == self.merchant_id);
        let webhook = webhook.ok_or(WebhookRefusal::NotFound)?;
        let settings = WebhookSettings {
            name: match &self.name {
                Edit::Keep => webhook.settings.name.clone(),
                Edit::Clear => None,
                Edit::Set(name) => Some(name.clone()),
            },
            url: self.url.clone().unwrap_or_else(|| webhook.settings.url.clone()),
            topics: match &self.topics {
                Edit::Keep => webhook.settings.topics.clone(),
                Edit::Clear => None,
                Edit::Set(topics) => Some(topics.clone()),
            },
            enabled: self.enabled.unwrap_or(webhook.settings.enabled),
        };
        if settings == webhook.settings {
            return Ok(Decision::already(webhook.clone().into()));
        }
        let revision = webhook.revision + 1;
        let event =
            Event::from(WebhookUpdated { webhook_id: self.webhook_id, revision, settings: settings.clone() });
        let updated = Webhook { settings, revision, ..webhook.clone() };
        Ok(Decision::append(self.merchant_id, self.now, vec![event], updated.into()))
    }
}
