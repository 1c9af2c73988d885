//! `GET /meters` and its alias `GET /products`.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::meters::query;

use super::resource::Meter;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's meters.
#[utoipa::path(
    get, path = "/meters", operation_id = "list_meters", tag = "meters",
    params(PageQuery),
    responses((status = 200, description = "A page of meters.", body = List<Meter>)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params(page): Params<PageQuery>,
) -> Result<Reply<List<Meter>>, ApiError> {
    let connection = reads.caught_up(ReadModel::Meters, merchant_id).await?;
    let listed = within(query::list(connection.partition(), merchant_id, page.as_query())).await?;
    let last = listed.items.last().map(|row| row.meter_id.to_string());
    let shown = listed.items.into_iter().map(|row| Meter::of_row(row, &app.server_key)).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
