//! The events of a merchant's webhooks, and the topics that webhooks deliver.

use serde::{Deserialize, Serialize};

use super::kind::area;
use crate::ids::{CustomerId, WebhookId};

area! {
    /// The events of a webhook.
    Event::Webhook(WebhookEvent) {
        Created(WebhookCreated) = "webhook.created",
        Updated(WebhookUpdated) = "webhook.updated",
        Deleted(WebhookDeleted) = "webhook.deleted",
    }
}

impl WebhookEvent {
    /// The fact's key: see [`super::Event::key`].
    pub(super) fn key(&self) -> String {
        match self {
            Self::Created(event) => format!("{}/created", event.webhook_id),
            Self::Updated(event) => format!("{}/updated/{}", event.webhook_id, event.revision),
            Self::Deleted(event) => format!("{}/deleted", event.webhook_id),
        }
    }
}

/// A topic of webhook events (completion.md section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = WebhookTopic))]
pub enum Topic {
    /// A customer was created.
    #[serde(rename = "customer.created")]
    CustomerCreated,
    /// A customer was deleted.
    #[serde(rename = "customer.deleted")]
    CustomerDeleted,
    /// The balance of a customer's wallet changed.
    #[serde(rename = "customer.wallet.balance.updated")]
    WalletBalanceUpdated,
    /// A call was metered.
    #[serde(rename = "request.completed")]
    RequestCompleted,
    /// A spend key's raw key was replaced.
    #[serde(rename = "spend_key.rotated")]
    SpendKeyRotated,
    /// A subscription started.
    #[serde(rename = "subscription.started")]
    SubscriptionStarted,
    /// A subscription ended.
    #[serde(rename = "subscription.cancelled")]
    SubscriptionCancelled,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 7] = [
        Self::CustomerCreated,
        Self::CustomerDeleted,
        Self::WalletBalanceUpdated,
        Self::RequestCompleted,
        Self::SpendKeyRotated,
        Self::SubscriptionStarted,
        Self::SubscriptionCancelled,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CustomerCreated => "customer.created",
            Self::CustomerDeleted => "customer.deleted",
            Self::WalletBalanceUpdated => "customer.wallet.balance.updated",
            Self::RequestCompleted => "request.completed",
            Self::SpendKeyRotated => "spend_key.rotated",
            Self::SubscriptionStarted => "subscription.started",
            Self::SubscriptionCancelled => "subscription.cancelled",
        }
    }

    /// The topic of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.name() == name)
    }
}

/// The webhook event that a ledger event leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookNotice {
    /// The topic.
    pub topic: Topic,
    /// The customer that it concerns, if any. Events of one customer are delivered in order.
    pub customer_id: Option<CustomerId>,
}

/// A webhook was created: a URL that receives events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookCreated {
    /// The webhook.
    pub webhook_id: WebhookId,
    /// Its URL and topics.
    #[serde(flatten)]
    pub settings: WebhookSettings,
}

/// A webhook was changed. The event holds all new settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookUpdated {
    /// The webhook.
    pub webhook_id: WebhookId,
    /// Counts the changes of this webhook, from 1.
    pub revision: u32,
    /// Its URL and topics.
    #[serde(flatten)]
    pub settings: WebhookSettings,
}

/// A webhook was deleted: it receives no event from this position on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDeleted {
    /// The webhook.
    pub webhook_id: WebhookId,
}

/// The URL and the topics of a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSettings {
    /// Its display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The URL that events are delivered to.
    pub url: String,
    /// The topics it receives; `None` for all.
    pub topics: Option<Vec<Topic>>,
    /// Events are delivered.
    pub enabled: bool,
}

impl WebhookSettings {
    /// Returns true if the webhook receives events of `topic`.
    pub fn wants(&self, topic: Topic) -> bool {
        self.enabled && self.topics.as_ref().is_none_or(|topics| topics.contains(&topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_topic_is_its_wire_form() {
        for topic in Topic::ALL {
            assert_eq!(serde_json::to_value(topic).unwrap(), topic.name());
            assert_eq!(Topic::named(topic.name()), Some(topic));
        }
        assert_eq!(Topic::named("request.opened"), None);
    }

    #[test]
    fn an_enabled_webhook_receives_its_topics_or_all() {
        let mut settings = WebhookSettings { name: None, url: String::new(), topics: None, enabled: true };
        assert!(Topic::ALL.into_iter().all(|topic| settings.wants(topic)));
        settings.topics = Some(vec![Topic::CustomerCreated]);
        assert!(settings.wants(Topic::CustomerCreated) && !settings.wants(Topic::CustomerDeleted));
        settings.enabled = false;
        assert!(!settings.wants(Topic::CustomerCreated));
    }
}
