//! `GET /checkout_sessions/{checkout_session_id}`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::checkout_sessions::query;

use super::resource::CheckoutSession;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the session. A completed session has `completed_at`.
#[utoipa::path(
    get, path = "/checkout_sessions/{checkout_session_id}", operation_id = "get_checkout_session",
    tag = "checkout_sessions",
    params(("checkout_session_id" = String, Path, description = "The session's id.")),
    responses(
        (status = 200, description = "The checkout session.", body = CheckoutSession),
        (status = 404, description = "checkout_session_not_found"),
    ),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<CheckoutSession>, ApiError> {
    let unknown = ApiError::NotFound(Resource::CheckoutSession);
    let Ok(id) = name.parse() else { return Err(unknown) };
    let connection = reads.caught_up(ReadModel::CheckoutSessions, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, id)).await?.ok_or(unknown)?;
    Ok(Reply::ok(CheckoutSession::shown(row, &app.server_key, &app.pages_url)))
}
