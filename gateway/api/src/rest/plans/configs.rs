//! `GET /subscription-configs`: a bare array, not wrapped in `data`.

use farthing_projector::ReadModel;
use farthing_projector::plans::query;

use super::resource::Plan;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::reads::Reads;

/// 200 with all of the merchant's plans, newest first.
#[utoipa::path(
    get, path = "/subscription-configs", operation_id = "list_subscription_configs", tag = "plans",
    responses((status = 200, description = "All plans, as a bare array.", body = Vec<Plan>)),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
) -> Result<Reply<Vec<Plan>>, ApiError> {
    let connection = reads.caught_up(ReadModel::Plans, merchant_id).await?;
    let rows = within(query::all(connection.partition(), merchant_id)).await?;
    Ok(Reply::ok(rows.into_iter().map(|row| Plan::of_row(merchant_id, row)).collect()))
}
