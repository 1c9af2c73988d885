//! The resources of webhooks and their deliveries.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use farthing_core::event::Topic;
use farthing_core::ids::{WebhookEventId, WebhookId};
use farthing_core::state;
use farthing_projector::webhooks::query::{DeliveryRow, DeliveryStatus};
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;

/// A webhook.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Webhook {
    webhook_id: WebhookId,
    name: Option<String>,
    url: String,
    /// The delivered events; `null`: all events.
    events: Option<Vec<Topic>>,
    /// Whether events are delivered.
    enabled: bool,
    created_at: Timestamp,
    /// The secret that signs deliveries. Only the response of the creation has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_secret: Option<String>,
}

impl Webhook {
    /// The webhook `id` from its state.
    pub(super) fn new(webhook_id: WebhookId, webhook: state::Webhook) -> Self {
        let settings = webhook.settings;
        Self {
            webhook_id,
            name: settings.name,
            url: settings.url,
            events: settings.topics,
            enabled: settings.enabled,
            created_at: Timestamp(webhook.created_at),
            webhook_secret: None,
        }
    }

    /// The webhook with its secret, which is shown only once.
    pub(super) fn with_secret(self, secret: String) -> Self {
        Self { webhook_secret: Some(secret), ..self }
    }
}

/// The delivery of an event to a webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Delivery {
    webhook_event_id: WebhookEventId,
    event: Topic,
    status: DeliveryStatus,
    /// Attempts since it was queued or resent.
    attempts: u32,
    /// The status of the receiver's last response.
    last_status_code: Option<u16>,
    /// The error of the last attempt.
    last_error: Option<String>,
    /// The next attempt, unless an earlier event of the customer is still pending.
    next_attempt_at: Option<Timestamp>,
    delivered_at: Option<Timestamp>,
    /// When the event happened.
    created_at: Timestamp,
}

impl From<DeliveryRow> for Delivery {
    fn from(row: DeliveryRow) -> Self {
        Self {
            webhook_event_id: row.event_id,
            event: row.topic,
            status: row.status,
            attempts: row.attempts,
            last_status_code: row.http_status,
            last_error: row.error,
            next_attempt_at: row.next_attempt_at.map(Timestamp),
            delivered_at: row.delivered_at.map(Timestamp),
            created_at: Timestamp(row.created_at),
        }
    }
}
