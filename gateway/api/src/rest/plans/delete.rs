//! `DELETE /plans/{plan_id}` and its aliases: no new subscriptions; existing ones continue.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::DeletePlan;
use farthing_core::ids::PlanId;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;

/// 200 with the id.
#[utoipa::path(
    delete, path = "/plans/{plan_id}", operation_id = "delete_plan", tag = "plans",
    params(("plan_id" = String, Path, description = "The plan's id.")),
    responses(
        (status = 200, description = "The plan and its bundles are deleted; subscriptions to it continue.", body = Deleted),
        (status = 404, description = "plan_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let Ok(plan_id) = name.parse::<PlanId>() else { return Err(ApiError::NotFound(Resource::Plan)) };
    app.submit(merchant_id, DeletePlan { merchant_id, plan_id, now: app.now() }).await?;
    Ok(Reply::ok(Deleted::id(plan_id)))
}
