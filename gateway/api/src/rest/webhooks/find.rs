//! `GET /webhooks/{webhook_id}`.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::ids::{MerchantId, WebhookId};
use farthing_core::state::{self, StateKey};

use super::resource::Webhook;
use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;

/// 200 with the webhook, without its secret.
#[utoipa::path(
    get, path = "/webhooks/{webhook_id}", operation_id = "get_webhook", tag = "webhooks",
    params(("webhook_id" = String, Path, description = "The webhook's id.")),
    responses(
        (status = 200, description = "The webhook.", body = Webhook),
        (status = 404, description = "webhook_not_found"),
    ),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Webhook>, ApiError> {
    let (webhook_id, webhook) = existing(&app, merchant_id, &name).await?;
    Ok(Reply::ok(Webhook::new(webhook_id, webhook)))
}

/// The merchant's webhook with the id `name`, from the authoritative state.
pub(super) async fn existing(
    app: &App,
    merchant_id: MerchantId,
    name: &str,
) -> Result<(WebhookId, state::Webhook), ApiError> {
    let unknown = ApiError::NotFound(Resource::Webhook);
    let Ok(webhook_id) = name.parse() else { return Err(unknown) };
    match app.state(merchant_id, StateKey::Webhook(webhook_id)).await? {
        Some(state::State::Webhook(webhook)) if webhook.merchant_id == merchant_id => {
            Ok((webhook_id, *webhook))
        }
        Some(_) | None => Err(unknown),
    }
}
