//! `DELETE /webhooks/{webhook_id}`: it receives no events that happen after the response.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::DeleteWebhook;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;

/// 200 with the id.
#[utoipa::path(
    delete, path = "/webhooks/{webhook_id}", operation_id = "delete_webhook", tag = "webhooks",
    params(("webhook_id" = String, Path, description = "The webhook's id.")),
    responses(
        (status = 200, description = "The webhook is deleted.", body = Deleted),
        (status = 404, description = "webhook_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let webhook_id = name.parse().map_err(|_| ApiError::NotFound(Resource::Webhook))?;
    app.submit(merchant_id, DeleteWebhook { merchant_id, webhook_id, now: app.now() }).await?;
    Ok(Reply::ok(Deleted::id(webhook_id)))
}
