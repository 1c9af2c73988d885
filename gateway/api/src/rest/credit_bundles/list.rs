//! `GET /credit_bundles`.

use farthing_core::ids::PlanId;
use farthing_projector::ReadModel;
use farthing_projector::plans::query;
use serde::Deserialize;

use crate::db::within;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::plans::CreditBundle;
use crate::rest::reads::Reads;

/// The filter by plan.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanQuery {
    /// Only bundles of this plan.
    subscription_config_id: Option<PlanId>,
    /// The newer name of `subscription_config_id`.
    plan_id: Option<PlanId>,
}

/// 200 with a page of the merchant's credit bundles.
#[utoipa::path(
    get, path = "/credit_bundles", operation_id = "list_credit_bundles", tag = "plans",
    params(
        PageQuery,
        PlanQuery,
    ),
    responses((status = 200, description = "A page of credit bundles.", body = List<CreditBundle>)),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((page, plan)): Params<(PageQuery, PlanQuery)>,
) -> Result<Reply<List<CreditBundle>>, ApiError> {
    let mut issues = Issues::default();
    let plan_id =
        issues.either(("subscription_config_id", plan.subscription_config_id), ("plan_id", plan.plan_id));
    issues.checked()?;
    let connection = reads.caught_up(ReadModel::Plans, merchant_id).await?;
    let listed = query::list_bundles(connection.partition(), merchant_id, page.as_query(), plan_id);
    let listed = within(listed).await?;
    let last = listed.items.last().map(|row| row.credit_bundle_id.to_string());
    let shown = listed.items.into_iter().map(CreditBundle::from).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
