//! `GET /subscription-configs`: a bare array, not wrapped in `data`.

use farthing_projector::ReadModel;
use farthing_projector::plans::query;

use super::resource::Plan;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::array::{Array, Pages};
use crate::rest::authenticate::Merchant;
use crate::rest::reads::Reads;

/// 200 with all of the merchant's plans, newest first.
#[utoipa::path(
    get, path = "/subscription-configs", operation_id = "list_subscription_configs", tag = "plans",
    responses((status = 200, description = "All plans, as a bare array.", body = Vec<Plan>)),
)]
pub(super) async fn list(Merchant { merchant_id }: Merchant, reads: Reads) -> Result<Array, ApiError> {
    let connection = reads.caught_up(ReadModel::Plans, merchant_id).await?;
    let (mut array, mut pages) = (reads.array(merchant_id), Pages::new());
    let read = async {
        while let Some(page) = pages.next() {
            let listed = query::list(connection.partition(), merchant_id, page).await?;
            let last = listed.items.last().map(|plan| plan.plan_id.to_string());
            pages.has_read(listed.items.len(), listed.has_more, last);
            for row in listed.items {
                array.push(&Plan::of_row(merchant_id, row))?;
            }
        }
        Ok::<_, ApiError>(())
    };
    within(read).await?;
    Ok(array)
}
