//! `GET /active-subscriptions`: a bare array, not wrapped in `data`.

use farthing_projector::ReadModel;
use farthing_projector::subscriptions::query;

use super::resource::ActiveSubscription;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::array::{Array, Pages};
use crate::rest::authenticate::Merchant;
use crate::rest::reads::Reads;

/// 200 with all of the merchant's subscriptions, newest first, cancelled ones included.
#[utoipa::path(
    get, path = "/active-subscriptions", operation_id = "list_active_subscriptions", tag = "subscriptions",
    responses((status = 200, description = "All subscriptions, as a bare array.", body = Vec<ActiveSubscription>)),
)]
pub(super) async fn list(Merchant { merchant_id }: Merchant, reads: Reads) -> Result<Array, ApiError> {
    for other in [ReadModel::Plans, ReadModel::Connections] {
        drop(reads.caught_up(other, merchant_id).await?);
    }
    let connection = reads.caught_up(ReadModel::Subscriptions, merchant_id).await?;
    let (mut array, mut pages) = (reads.array(merchant_id), Pages::new());
    let read = async {
        while let Some(page) = pages.next() {
            let listed = query::older(connection.partition(), merchant_id, page).await?;
            let last = listed.items.last().map(|row| row.subscription_id.to_string());
            pages.has_read(listed.items.len(), listed.has_more, last);
            for row in listed.items {
                array.push(&ActiveSubscription::of_row(merchant_id, row)?)?;
            }
        }
        Ok::<_, ApiError>(())
    };
    within(read).await?;
    Ok(array)
}
