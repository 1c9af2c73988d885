//! Finds and lists what a webhook is told.

use chrono::{DateTime, Utc};
use farthing_core::event::Topic;
use farthing_core::ids::{WebhookEventId, WebhookId};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::column::{Columns, Unreadable};
use crate::query::{Error, Listed, Page, Parameter};

/// How far the telling has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", schema(as = DeliveryStatus))]
pub enum Status {
    /// To be told: for the first time, or again.
    Pending,
    /// WebhookNotice: the receiver answered with a status of 200 to 299.
    Delivered,
    /// Given up.
    Failed,
}

/// What a webhook is told of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The id under which it is told.
    pub event_id: WebhookEventId,
    /// What kind of news it is.
    pub topic: Topic,
    /// How far the telling has come.
    pub status: Status,
    /// How often it was tried since it was queued, or sent again.
    pub attempts: u32,
    /// The receiver's last status, where it answered.
    pub http_status: Option<u16>,
    /// What went wrong at the last attempt.
    pub error: Option<String>,
    /// When it is tried next, unless something before it holds it up; none when it has ended.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// When it was told.
    pub delivered_at: Option<DateTime<Utc>>,
    /// When the event happened.
    pub created_at: DateTime<Utc>,
}

impl DeliveryRow {
    fn read(columns: &mut Columns<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            event_id: columns.id()?,
            topic: columns.word()?,
            status: columns.word()?,
            attempts: u32::try_from(columns.plain::<i32>()?).unwrap_or(0),
            http_status: columns.plain::<Option<i32>>()?.and_then(|status| u16::try_from(status).ok()),
            error: columns.plain()?,
            next_attempt_at: columns.plain()?,
            delivered_at: columns.plain()?,
            created_at: columns.plain()?,
        })
    }
}

macro_rules! select_deliveries {
    ($rest:literal) => {
        concat!(
            "SELECT event_id, topic, status, attempts, http_status, error, next_attempt_at, delivered_at, ",
            "created_at FROM webhooks.delivery WHERE webhook_id = $1 ",
            $rest
        )
    };
}

/// What one webhook is told of one event.
pub const FIND: &str = select_deliveries!("AND event_id = $2");

/// What a webhook is told, before a place in the log.
pub const LIST: &str = select_deliveries!("AND position < $2 ORDER BY position DESC LIMIT $3");

/// The place of a cursor.
pub const PLACE: &str = "SELECT position FROM webhooks.delivery WHERE webhook_id = $1 AND event_id = $2";

/// How far in the log the outbox has been filled.
pub const CURSOR: &str = "SELECT position FROM webhooks.cursor";

/// The position up to which it is known what webhooks are told.
pub async fn cursor(db: &Client) -> Result<i64, tokio_postgres::Error> {
    let rows = db.query_typed(CURSOR, &[]).await?;
    rows.first().map_or(Ok(0), |row| row.try_get(0))
}

/// What `webhook_id` is told under `event_id`.
pub async fn find(
    db: &Client,
    webhook_id: WebhookId,
    event_id: WebhookEventId,
) -> Result<Option<DeliveryRow>, Error> {
    let parameters: [Parameter<'_>; 2] =
        [(&webhook_id.to_string(), Type::TEXT), (&event_id.to_string(), Type::TEXT)];
    let row = db.query_typed(FIND, &parameters).await?.into_iter().next();
    Ok(row.map(|row| DeliveryRow::read(&mut Columns::of(&row))).transpose()?)
}

/// What `webhook_id` is told, newest first.
pub async fn list(db: &Client, webhook_id: WebhookId, page: Page<'_>) -> Result<Listed<DeliveryRow>, Error> {
    let webhook = webhook_id.to_string();
    let before = match page.cursor {
        None => i64::MAX,
        Some(cursor) => {
            let id = cursor.parse::<WebhookEventId>().map_err(|_| Error::CursorInvalid)?.to_string();
            let parameters: [Parameter<'_>; 2] = [(&webhook, Type::TEXT), (&id, Type::TEXT)];
            let row = db.query_typed(PLACE, &parameters).await?.into_iter().next();
            row.ok_or(Error::CursorInvalid)?.try_get(0)?
        }
    };
    let limit = page.rows_to_ask();
    let parameters: [Parameter<'_>; 3] =
        [(&webhook, Type::TEXT), (&before, Type::INT8), (&limit, Type::INT8)];
    let rows = db.query_typed(LIST, &parameters).await?;
    let rows: Result<Vec<_>, _> = rows.iter().map(|row| DeliveryRow::read(&mut Columns::of(row))).collect();
    Ok(Listed::cut(rows?, page))
}
