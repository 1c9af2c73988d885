//! `PATCH /plans/{plan_id}` and its aliases: everything but price and interval, bundles included.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::UpdatePlan;
use farthing_core::ids::{CreditBundleId, MerchantId, PlanId};
use farthing_core::plan::PlanTerms;
use farthing_core::state::{self, StateKey};
use farthing_projector::ReadModel;
use farthing_projector::plans::query;

use super::changes::PlanChangesBody;
use super::new_plan::linked_meters;
use super::resource::Plan;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::input;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the updated plan. Running cycles keep their terms.
#[utoipa::path(
    patch, path = "/plans/{plan_id}", operation_id = "update_plan", tag = "plans",
    params(("plan_id" = String, Path, description = "The plan's id.")),
    request_body = PlanChangesBody,
    responses(
        (status = 200, description = "The updated plan.", body = Plan),
        (status = 404, description = "plan_not_found meter_not_found credit_bundle_not_found"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<Plan>, ApiError> {
    // A body that is not a JSON object is refused before the path is looked up.
    input::check_object(&json)?;
    let unknown = || ApiError::NotFound(Resource::Plan);
    let plan_id: PlanId = name.parse().map_err(|_| unknown())?;
    let present = plan_terms(&app, merchant_id, plan_id).await?.ok_or_else(unknown)?;
    let changes = input::body::<PlanChangesBody>(&json)?.checked(&present)?;
    let meter_ids = match &changes.meters {
        None => None,
        Some(meters) => {
            let linked = linked_meters(&app, merchant_id, meters).await?;
            Some(linked.into_iter().map(|(id, _)| id).collect())
        }
    };
    let now = app.now();
    let edits = changes.edits(meter_ids, || CreditBundleId::new(app.mint.next(now)));
    app.submit(merchant_id, UpdatePlan { merchant_id, plan_id, edits, now }).await?;
    let connection = reads.caught_up_after_write(ReadModel::Plans, merchant_id).await?;
    // The plan may have been deleted in the meantime.
    let row = within(query::find(connection.partition(), merchant_id, plan_id)).await?.ok_or_else(unknown)?;
    Ok(Reply::ok(Plan::of_row(merchant_id, row)))
}

/// The terms of the merchant's plan, from the authoritative state.
async fn plan_terms(
    app: &App,
    merchant_id: MerchantId,
    plan_id: PlanId,
) -> Result<Option<PlanTerms>, ApiError> {
    match app.state(merchant_id, StateKey::Plan(plan_id)).await? {
        Some(state::State::Plan(plan)) if plan.merchant_id == merchant_id => Ok(Some(plan.terms)),
        Some(_) | None => Ok(None),
    }
}
