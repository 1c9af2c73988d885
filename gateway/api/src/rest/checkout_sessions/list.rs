//! `GET /checkout_sessions`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::checkout_sessions::query;

use super::resource::CheckoutSession;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery, ReferenceQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's sessions.
#[utoipa::path(
    get, path = "/checkout_sessions", operation_id = "list_checkout_sessions", tag = "checkout_sessions",
    params(
        PageQuery, ReferenceQuery
    ),
    responses((status = 200, description = "A page of checkout sessions.", body = List<CheckoutSession>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, reference)): Params<(PageQuery, ReferenceQuery)>,
) -> Result<Reply<List<CheckoutSession>>, ApiError> {
    let connection = reads.caught_up(ReadModel::CheckoutSessions, merchant_id).await?;
    let listed = query::list(connection.partition(), merchant_id, page.as_query(), reference.reference_id());
    let listed = within(listed).await?;
    let last = listed.items.last().map(|row| row.checkout_session_id.to_string());
    let shown = listed.items.into_iter();
    let shown = shown.map(|row| CheckoutSession::shown(row, &app.server_key, &app.pages_url)).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
