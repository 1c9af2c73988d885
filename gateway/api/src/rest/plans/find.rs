//! `GET /plans/{plan_id}` and its aliases.

use farthing_core::ids::PlanId;
use farthing_projector::ReadModel;
use farthing_projector::plans::query;

use super::resource::Plan;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the plan.
#[utoipa::path(
    get, path = "/plans/{plan_id}", operation_id = "get_plan", tag = "plans",
    params(("plan_id" = String, Path, description = "The plan's id.")),
    responses(
        (status = 200, description = "The plan.", body = Plan),
        (status = 404, description = "plan_not_found"),
    ),
)]
pub(super) async fn find(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<Plan>, ApiError> {
    let unknown = ApiError::NotFound(Resource::Plan);
    let Ok(plan_id) = name.parse::<PlanId>() else { return Err(unknown) };
    let connection = reads.caught_up(ReadModel::Plans, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, plan_id)).await?.ok_or(unknown)?;
    Ok(Reply::ok(Plan::of_row(merchant_id, row)))
}
