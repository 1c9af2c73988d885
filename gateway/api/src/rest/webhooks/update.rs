//! `PATCH /webhooks/{webhook_id}`.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::UpdateWebhook;

use super::resource::Webhook;
use super::settings::{WebhookChangesBody, WebhookEdits};
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::params::Named;

/// 200 with the updated webhook.
#[utoipa::path(
    patch, path = "/webhooks/{webhook_id}", operation_id = "update_webhook", tag = "webhooks",
    params(("webhook_id" = String, Path, description = "The webhook's id.")),
    request_body = WebhookChangesBody,
    responses(
        (status = 200, description = "The updated webhook.", body = Webhook),
        (status = 404, description = "webhook_not_found"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<Webhook>, ApiError> {
    let WebhookEdits { name: display_name, url, topics, enabled } = WebhookEdits::read(&json)?;
    let webhook_id = name.parse().map_err(|_| ApiError::NotFound(Resource::Webhook))?;
    let now = app.now();
    let command = UpdateWebhook { merchant_id, webhook_id, name: display_name, url, topics, enabled, now };
    let updated = app.submit(merchant_id, command).await?;
    Ok(Reply::ok(Webhook::new(webhook_id, *updated)))
}
