//! Finds and lists the deliveries of a webhook.

use chrono::{DateTime, Utc};
use farthing_core::event::Topic;
use farthing_core::ids::{WebhookEventId, WebhookId};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::query::{self, Error, Listed, Page, PartitionClient, text};
use crate::row::{ReadColumn as _, row};

/// The status of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeliveryStatus {
    /// It waits for its next attempt.
    Pending,
    /// The receiver answered with a status of 200 to 299.
    Delivered,
    /// The last attempt has failed.
    Failed,
}

row! {
    /// A delivery: one event for one webhook.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DeliveryRow {
        /// The event's id for this webhook.
        pub event_id: WebhookEventId = id,
        /// The kind of event.
        pub topic: Topic = variant,
        /// The status.
        pub status: DeliveryStatus = variant,
        /// Attempts since it was queued, or resent.
        pub attempts: u32 = integer,
        /// The receiver's last status, if it answered.
        pub http_status: Option<u16> = integer_or_null,
        /// The error of the last attempt.
        pub error: Option<String> = plain,
        /// The earliest instant of the next attempt, unless an earlier delivery of the queue delays it; `None` if it
        /// has ended.
        pub next_attempt_at: Option<DateTime<Utc>> = plain,
        /// When it was delivered.
        pub delivered_at: Option<DateTime<Utc>> = plain,
        /// When the event happened.
        pub created_at: DateTime<Utc> = plain,
    }
}

macro_rules! select_deliveries {
    ($rest:literal) => {
        concat!(
            "SELECT event_id, topic, status, attempts, http_status, error, next_attempt_at, delivered_at, ",
            "created_at FROM webhooks.delivery WHERE partition = $1 AND webhook_id = $2 ",
            $rest
        )
    };
}

/// A delivery by its event.
pub const FIND: &str = select_deliveries!("AND event_id = $3");

/// The deliveries of a webhook before a position in the log, newest first.
pub const LIST: &str = select_deliveries!("AND position < $3 ORDER BY position DESC LIMIT $4");

/// The position of the delivery of a cursor.
pub const POSITION: &str =
    "SELECT position FROM webhooks.delivery WHERE partition = $1 AND webhook_id = $2 AND event_id = $3";

/// The position in a partition of the log up to which the outbox is filled.
pub const CURSOR: &str = "SELECT position FROM webhooks.cursor WHERE partition = $1";

/// The position in the partition up to which the outbox is filled.
pub async fn cursor(db: PartitionClient<'_>) -> Result<i64, tokio_postgres::Error> {
    query::first_row(db, CURSOR, &[]).await?.map_or(Ok(0), |row| row.try_get("position"))
}

/// The delivery of `event_id` to `webhook_id`.
pub async fn find(
    db: PartitionClient<'_>,
    webhook_id: WebhookId,
    event_id: WebhookEventId,
) -> Result<Option<DeliveryRow>, Error> {
    query::first(db, FIND, &[text(&webhook_id.to_string()), text(&event_id.to_string())]).await
}

/// The deliveries of `webhook_id`, newest first.
pub async fn list(
    db: PartitionClient<'_>,
    webhook_id: WebhookId,
    page: Page<'_>,
) -> Result<Listed<DeliveryRow>, Error> {
    let webhook = webhook_id.to_string();
    let before: i64 = match page.cursor {
        None => i64::MAX,
        Some(cursor) => {
            let id = cursor.parse::<WebhookEventId>().map_err(|_| Error::CursorInvalid)?.to_string();
            let row = query::first_row(db, POSITION, &[text(&webhook), text(&id)]).await?;
            row.ok_or(Error::CursorInvalid)?.plain("position")?
        }
    };
    let limit = page.rows_to_select();
    let parameters = [text(&webhook), (&before as _, Type::INT8), (&limit as _, Type::INT8)];
    query::page(db, LIST, &parameters, page).await
}
