//! `POST /webhooks/{webhook_id}/deliveries/{webhook_event_id}/resend`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::query::PartitionClient;
use farthing_projector::webhooks::query;

use super::find::existing;
use super::resource::Delivery;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::idempotency::StoredResponse;
use crate::read_connection::counted;
use crate::read_turns::Reader;
use crate::rest::body::Reply;
use crate::rest::params::NamedWithin;
use crate::rest::writes::Writes;
use farthing_worker::webhooks::queue;

/// 200 with the delivery. It is sent again at once, or after a running delivery of the same customer. A pending one is begun
/// again: its attempts and its time count from now on. If an attempt at it is running and succeeds, it is not sent again.
///
/// The log does not record deliveries.
#[utoipa::path(
    post, path = "/webhooks/{webhook_id}/deliveries/{webhook_event_id}/resend",
    operation_id = "resend_webhook_delivery", tag = "webhooks",
    params(
        ("webhook_id" = String, Path, description = "The webhook's id."),
        ("webhook_event_id" = String, Path, description = "The delivery's event id."),
    ),
    responses(
        (status = 200, description = "The delivery, to be sent again.", body = Delivery),
        (status = 404, description = "webhook_not_found webhook_event_not_found"),
    ),
)]
pub(super) async fn resend(
    State(app): State<Arc<App>>,
    NamedWithin(webhook, event): NamedWithin,
    writes: Writes,
) -> Result<StoredResponse, ApiError> {
    let (webhook_id, _) = existing(&app, writes.merchant_id, &webhook).await?;
    let unknown = ApiError::NotFound(Resource::WebhookEvent);
    let Ok(event_id) = event.parse() else { return Err(unknown) };
    if let Some(answer) = writes.answer_of_another_leader().await? {
        return Ok(answer);
    }
    let partition = app.partitions.of(writes.merchant_id);
    let mut connection = app.short_read(Reader::Merchant(writes.merchant_id)).await?;
    let (client, unanswered) = connection.for_transaction();
    if !counted(unanswered, queue::resend(client, partition, webhook_id, event_id)).await? {
        return Err(unknown);
    }
    let rows = PartitionClient::new(&connection, &app.schemas, partition);
    let row = connection.within(query::find(rows, webhook_id, event_id)).await?.ok_or(unknown)?;
    drop(connection);
    writes.keep(Reply::ok(Delivery::from(row))).await
}
