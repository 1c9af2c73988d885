//! `GET /connections`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::connections::query;

use super::resource::Connection;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::openapi::values;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's connections, narrowed by `reference_id`.
#[utoipa::path(
    get, path = "/connections", operation_id = "list_connections", tag = "connections",
    params(PageQuery, ("reference_id" = inline(Option<values::Filter>), Query, description = "Only the customer's of this name.")),
    responses((status = 200, description = "A page of connections.", body = List<Connection>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    mut params: Params,
) -> Result<Reply<List<Connection>>, ApiError> {
    let page = params.page();
    let reference_id = params.text("reference_id");
    params.checked()?;
    let connection = reads.caught_up(ReadModel::Connections).await?;
    let listed = query::list(&connection, merchant_id, page.as_query(), reference_id.as_deref());
    let listed = within(listed).await?;
    let last = listed.items.last().map(|row| row.connection_id.to_string());
    let now = app.merchants_now(merchant_id).await?;
    let shown = listed.items.into_iter().map(|row| Connection::new(row, now, &app.server_key)).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
