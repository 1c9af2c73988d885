//! `GET /connections`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::connections::query;

use super::resource::Connection;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery, ReferenceQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's connections.
#[utoipa::path(
    get, path = "/connections", operation_id = "list_connections", tag = "connections",
    params(PageQuery, ReferenceQuery),
    responses((status = 200, description = "A page of connections.", body = List<Connection>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, reference)): Params<(PageQuery, ReferenceQuery)>,
) -> Result<Reply<List<Connection>>, ApiError> {
    let connection = reads.caught_up(ReadModel::Connections, merchant_id).await?;
    let listed = query::list(connection.partition(), merchant_id, page.as_query(), reference.reference_id());
    let listed = within(listed).await?;
    let last = listed.items.last().map(|row| row.connection_id.to_string());
    let now = app.merchants_now(merchant_id).await?;
    let shown = listed.items.into_iter().map(|row| Connection::new(row, now, &app.server_key)).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
