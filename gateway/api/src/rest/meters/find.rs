//! `GET /meters/{id}` and its alias `GET /products/{id}`, by id or slug.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::meters::query;

use super::resource::Meter;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the meter.
#[utoipa::path(
    get, path = "/meters/{id}", operation_id = "get_meter", tag = "meters",
    params(("id" = String, Path, description = "The meter's id or slug.")),
    responses(
        (status = 200, description = "The meter.", body = Meter),
        (status = 404, description = "meter_not_found"),
    ),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<Meter>, ApiError> {
    let connection = reads.caught_up(ReadModel::Meters, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, &name)).await?;
    let row = row.ok_or(ApiError::NotFound(Resource::Meter))?;
    Ok(Reply::ok(Meter::of_row(row, &app.server_key)))
}
