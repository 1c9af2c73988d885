//! `GET /active-subscriptions`: a bare array, not wrapped in `data`.

use farthing_projector::ReadModel;
use farthing_projector::subscriptions::query;

use super::resource::ActiveSubscription;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::reads::Reads;

/// 200 with all of the merchant's subscriptions, newest first, cancelled ones included.
#[utoipa::path(
    get, path = "/active-subscriptions", operation_id = "list_active_subscriptions", tag = "subscriptions",
    responses((status = 200, description = "All subscriptions, as a bare array.", body = Vec<ActiveSubscription>)),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
) -> Result<Reply<Vec<ActiveSubscription>>, ApiError> {
    for other in [ReadModel::Plans, ReadModel::Connections] {
        drop(reads.caught_up(other, merchant_id).await?);
    }
    let connection = reads.caught_up(ReadModel::Subscriptions, merchant_id).await?;
    let rows = within(query::older(connection.partition(), merchant_id)).await?;
    Ok(Reply::ok(ActiveSubscription::of_rows(merchant_id, rows)?))
}
