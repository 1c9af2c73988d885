//! `POST /plans` and its aliases.

use std::sync::Arc;

use axum::extract::State;
use chrono::Utc;
use farthing_core::command::{CreatePlan, NewBundle};
use farthing_core::ids::{CreditBundleId, PlanId};
use farthing_core::plan::PlanTerms;

use super::new_plan::{NewPlanBody, linked_meters};
use super::resource::{CreditBundle, Plan};
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::StoredResponse;
use crate::input;
use crate::rest::body::Reply;
use crate::rest::writes::Writes;

/// 201 with the new plan and its bundles.
#[utoipa::path(
    post, path = "/plans", operation_id = "create_plan", tag = "plans",
    request_body = NewPlanBody,
    responses(
        (status = 201, description = "The new plan.", body = Plan),
        (status = 404, description = "meter_not_found credit_bundle_not_found"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<StoredResponse, ApiError> {
    let merchant_id = writes.merchant_id;
    let plan = input::body::<NewPlanBody>(writes.json()?)?.checked()?;
    let linked = linked_meters(&app, merchant_id, &plan.meters).await?;
    let now = app.now();
    let plan_id = PlanId::new(app.mint.next(now));
    let terms = PlanTerms {
        name: plan.name,
        period_amount: plan.period_amount,
        included_credit: plan.included_credit,
        billing_interval: plan.billing_interval,
        rollover_type: plan.rollover_type,
        bundle_rollover_type: plan.bundle_rollover_type,
        meter_ids: linked.iter().map(|(id, _)| *id).collect(),
        default_auto_top_up_bundle_id: plan.default_auto_top_up_bundle_id,
    };
    let fresh = |offer| NewBundle { credit_bundle_id: CreditBundleId::new(app.mint.next(now)), offer };
    let bundles: Vec<_> = plan.bundles.into_iter().map(fresh).collect();
    let command = CreatePlan { merchant_id, plan_id, terms: terms.clone(), bundles: bundles.clone(), now };
    let slugs = linked.into_iter().collect();
    let render = move |created_at: &chrono::DateTime<Utc>| {
        let shown = |bundle: NewBundle| {
            CreditBundle::new(bundle.credit_bundle_id, plan_id, bundle.offer, *created_at)
        };
        let bundles = bundles.iter().cloned().map(shown).collect();
        Reply::created(Plan::new(merchant_id, plan_id, terms.clone(), bundles, &slugs, *created_at))
    };
    writes.submit(command, render).await
}
