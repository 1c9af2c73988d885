//! `POST /plans` and its aliases.

use std::sync::Arc;

use axum::extract::State;
use chrono::Utc;
use farthing_core::command::{CreatePlan, NewBundle};
use farthing_core::ids::{CreditBundleId, PlanId};
use farthing_core::plan::PlanTerms;

use super::configuration::{Configuration, NewPlan};
use super::resource::{CreditBundle, Plan};
use crate::app::App;
use crate::error::ApiError;
use crate::idempotency::Answer;
use crate::rest::body::Reply;
use crate::rest::writes::Writes;

/// 201 with the new plan and its bundles.
#[utoipa::path(
    post, path = "/plans", operation_id = "create_plan", tag = "plans",
    request_body = NewPlan,
    responses(
        (status = 201, description = "The new plan.", body = Plan),
        (status = 404, description = "meter_not_found credit_bundle_not_found"),
    ),
)]
pub(super) async fn create(State(app): State<Arc<App>>, writes: Writes) -> Result<Answer, ApiError> {
    let merchant_id = writes.merchant_id;
    let wanted = Configuration::read(writes.json()?)?;
    let linked = app.linked_meters(merchant_id, &wanted.meters).await?;
    let now = app.now();
    let plan_id = PlanId::new(app.mint.next(now));
    let terms = PlanTerms {
        name: wanted.name,
        period_amount: wanted.period_amount,
        included_credit: wanted.included_credit,
        billing_interval: wanted.billing_interval,
        rollover_type: wanted.rollover_type,
        bundle_rollover_type: wanted.bundle_rollover_type,
        meter_ids: linked.iter().map(|(id, _)| *id).collect(),
        default_auto_top_up_bundle_id: wanted.default_auto_top_up_bundle_id,
    };
    let fresh = |offer| NewBundle { credit_bundle_id: CreditBundleId::new(app.mint.next(now)), offer };
    let bundles: Vec<_> = wanted.bundles.into_iter().map(fresh).collect();
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
