//! `GET /connections/{id}/subscription`, by id or the customer's reference id.

use std::sync::Arc;

use axum::extract::State;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::customers::subscription::CurrentSubscription;
use crate::rest::older_and_newer_names::existing_customer;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the connection's subscription, or `null`.
#[utoipa::path(
    get, path = "/connections/{connection_id}/subscription", operation_id = "get_connection_subscription",
    tag = "connections",
    params(("connection_id" = String, Path, description = "The connection's id, or the customer's reference_id.")),
    responses(
        (status = 200, description = "The connection's subscription, or null.", body = CurrentSubscription),
        (status = 404, description = "connection_not_found"),
    ),
)]
pub(super) async fn subscription(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<CurrentSubscription>, ApiError> {
    let id = existing_customer(&app, merchant_id, &name, Resource::Connection).await?;
    Ok(Reply::ok(CurrentSubscription::of(&reads, merchant_id, id).await?))
}
