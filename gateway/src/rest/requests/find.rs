//! `GET /requests/{id}`.

use farthing_projector::ReadModel;
use farthing_projector::requests::query;

use super::resource::Request;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::{Reads, within};

/// 200 with the request.
pub(in crate::rest) async fn find(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<Request>, ApiError> {
    let unknown = ApiError::NotFound(Resource::Request);
    let Ok(id) = name.parse() else { return Err(unknown) };
    let connection = reads.caught_up(ReadModel::Requests).await?;
    let row = within(query::find(&connection, merchant_id, id)).await?.ok_or(unknown)?;
    Ok(Reply::ok(row.into()))
}
