//! The Webhook resource, and what a webhook is told.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use farthing_core::event::Topic;
use farthing_core::ids::{WebhookEventId, WebhookId};
use farthing_core::state;
use farthing_projector::webhooks::query::{DeliveryRow, DeliveryStatus};
use serde::Serialize;
use utoipa::ToSchema;

use crate::rest::body::Timestamp;

/// A webhook as it is shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Webhook {
    webhook_id: WebhookId,
    url: String,
    /// What it is told of; `null` for everything.
    events: Option<Vec<Topic>>,
    /// Is it told at all?
    enabled: bool,
    created_at: Timestamp,
    /// What signs all that it is told: only in the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_secret: Option<String>,
}

impl Webhook {
    /// The webhook `id` as its state says.
    pub(super) fn new(webhook_id: WebhookId, webhook: state::Webhook) -> Self {
        let settings = webhook.settings;
        Self {
            webhook_id,
            url: settings.url,
            events: settings.topics,
            enabled: settings.enabled,
            created_at: Timestamp(webhook.created_at),
            webhook_secret: None,
        }
    }

    /// The webhook with its secret, which is shown this once.
    pub(super) fn with_secret(self, secret: String) -> Self {
        Self { webhook_secret: Some(secret), ..self }
    }
}

/// What a webhook is told of one event, and how far that has come.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Delivery {
    webhook_event_id: WebhookEventId,
    event: Topic,
    status: DeliveryStatus,
    /// How often it was tried since it was queued, or sent again.
    attempts: u32,
    /// The receiver's last status, where it answered.
    last_status_code: Option<u16>,
    /// What went wrong at the last attempt.
    last_error: Option<String>,
    /// When it is tried next, unless an earlier event of the customer holds it up.
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
