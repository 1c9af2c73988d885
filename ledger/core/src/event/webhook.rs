//! The events of a merchant's webhooks, and which events of the log a webhook may tell of.

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

/// What a webhook tells of (completion.md section 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = WebhookTopic))]
pub enum Topic {
    /// A customer came to be.
    #[serde(rename = "customer.created")]
    CustomerCreated,
    /// A customer is no more.
    #[serde(rename = "customer.deleted")]
    CustomerDeleted,
    /// Money came into a customer's wallet, or left it.
    #[serde(rename = "customer.wallet.balance.updated")]
    WalletBalanceUpdated,
    /// A call was metered.
    #[serde(rename = "request.completed")]
    RequestCompleted,
    /// A spend key has a new raw key.
    #[serde(rename = "spend_key.rotated")]
    SpendKeyRotated,
    /// A subscription began.
    #[serde(rename = "subscription.started")]
    SubscriptionStarted,
    /// A subscription ended.
    #[serde(rename = "subscription.cancelled")]
    SubscriptionCancelled,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::CustomerCreated,
        Self::CustomerDeleted,
        Self::WalletBalanceUpdated,
        Self::RequestCompleted,
        Self::SpendKeyRotated,
        Self::SubscriptionStarted,
        Self::SubscriptionCancelled,
    ];

    /// How it is written.
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

/// What webhooks are told of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookNotice {
    /// What kind of news it is.
    pub topic: Topic,
    /// Whose, where it is a customer's: news of one customer are told in order.
    pub customer_id: Option<CustomerId>,
}

/// A webhook came to be: a URL that is told of what happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookCreated {
    /// The webhook.
    pub webhook_id: WebhookId,
    /// Where, and of what.
    #[serde(flatten)]
    pub settings: WebhookSettings,
}

/// A webhook was changed. All of its settings stand here as they are from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookUpdated {
    /// The webhook.
    pub webhook_id: WebhookId,
    /// Counts the changes of this webhook, from 1.
    pub revision: u32,
    /// Where, and of what.
    #[serde(flatten)]
    pub settings: WebhookSettings,
}

/// A webhook is no more: it is told of nothing from this position on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDeleted {
    /// The webhook.
    pub webhook_id: WebhookId,
}

/// Where a webhook is, and what it is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSettings {
    /// Where it is told.
    pub url: String,
    /// What it is told of; none for everything.
    pub topics: Option<Vec<Topic>>,
    /// Is it told at all?
    pub enabled: bool,
}

impl WebhookSettings {
    /// Is it told of `topic`?
    pub fn wants(&self, topic: Topic) -> bool {
        self.enabled && self.topics.as_ref().is_none_or(|topics| topics.contains(&topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_named_as_it_is_written() {
        for topic in Topic::ALL {
            assert_eq!(serde_json::to_value(topic).unwrap(), topic.name());
            assert_eq!(Topic::named(topic.name()), Some(topic));
        }
        assert_eq!(Topic::named("request.opened"), None);
    }

    #[test]
    fn a_webhook_wants_what_it_names_or_everything_while_it_is_enabled() {
        let mut settings = WebhookSettings { url: String::new(), topics: None, enabled: true };
        assert!(Topic::ALL.into_iter().all(|topic| settings.wants(topic)));
        settings.topics = Some(vec![Topic::CustomerCreated]);
        assert!(settings.wants(Topic::CustomerCreated) && !settings.wants(Topic::CustomerDeleted));
        settings.enabled = false;
        assert!(!settings.wants(Topic::CustomerCreated));
    }
}
