//! `POST /webhooks`.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::CreateWebhook;
use farthing_core::ids::WebhookId;
use farthing_core::state;

use super::resource::Webhook;
use super::settings::{self, NewWebhookBody};
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::StoredResponse;
use crate::rest::body::Reply;
use crate::rest::writes::Writes;

/// 201 with the new webhook and its secret, which is shown only once.
///
/// Every delivery is signed twice with the secret: `X-Webhook-Signature` is the hexadecimal HMAC-SHA256 of the body, with
/// the secret's text as the key, and `webhook-id`, `webhook-timestamp` and `webhook-signature` follow Standard Webhooks.
/// Events are delivered at least once, with a stable `webhook_event_id`, and in order per customer. A receiver must respond
/// with a status of 200 to 299 within ten seconds. Otherwise the delivery is retried with growing delays for a day.
#[utoipa::path(
    post, path = "/webhooks", operation_id = "create_webhook", tag = "webhooks",
    request_body = NewWebhookBody,
    responses(
        (status = 201, description = "The new webhook with its secret.", body = Webhook),
        (status = 400, description = "webhook_limit_reached"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    let settings = settings::read(writes.json()?)?;
    let now = app.now();
    let webhook_id = WebhookId::new(app.mint.next(now));
    let command = CreateWebhook { merchant_id: writes.merchant_id, webhook_id, settings, now };
    let secret = app.server_key.webhook_secret(webhook_id);
    let render = move |made: &state::Webhook| {
        Reply::created(Webhook::new(webhook_id, made.clone()).with_secret(secret.clone()))
    };
    writes.submit(command, render).await
}
