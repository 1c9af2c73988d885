//! `GET /plans`.

use farthing_projector::ReadModel;
use farthing_projector::plans::query;

use super::resource::Plan;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;

/// 200 with a page of the merchant's plans.
#[utoipa::path(
    get, path = "/plans", operation_id = "list_plans", tag = "plans",
    params(PageQuery),
    responses((status = 200, description = "A page of plans.", body = List<Plan>)),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params(page): Params<PageQuery>,
) -> Result<Reply<List<Plan>>, ApiError> {
    let connection = reads.caught_up(ReadModel::Plans, merchant_id).await?;
    let listed = within(query::list(connection.partition(), merchant_id, page.as_query())).await?;
    let last = listed.items.last().map(|row| row.plan_id.to_string());
    let shown = listed.items.into_iter().map(|row| Plan::of_row(merchant_id, row)).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
