//! `GET /requests/{id}`.

use farthing_projector::ReadModel;
use farthing_projector::requests::query;

use super::resource::Request;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the request.
#[utoipa::path(
    get, path = "/requests/{request_id}", operation_id = "get_request", tag = "requests",
    params(("request_id" = String, Path, description = "The request's id.")),
    responses(
        (status = 200, description = "The request.", body = Request),
        (status = 404, description = "request_not_found"),
    ),
)]
pub(super) async fn find(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<Request>, ApiError> {
    let unknown = ApiError::NotFound(Resource::Request);
    let connection = reads.caught_up(ReadModel::Requests, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, &name)).await?.ok_or(unknown)?;
    Ok(Reply::ok(row.into()))
}
