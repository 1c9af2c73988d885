//! `GET /credit_bundles`.

use farthing_core::ids::PlanId;
use farthing_projector::ReadModel;
use farthing_projector::plans::query;

use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::page::{List, PageQuery};
use crate::rest::params::Params;
use crate::rest::plans::CreditBundle;
use crate::rest::reads::Reads;
use crate::rules;

/// 200 with a page of the merchant's credit bundles; with a plan, of that plan's.
#[utoipa::path(
    get, path = "/credit_bundles", operation_id = "list_credit_bundles", tag = "plans",
    params(
        PageQuery,
        ("subscription_config_id" = Option<PlanId>, Query, description = "Only this plan's."),
        ("plan_id" = Option<PlanId>, Query, description = "The same in the newer word."),
    ),
    responses((status = 200, description = "A page of credit bundles.", body = List<CreditBundle>)),
)]
pub(super) async fn list(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    mut params: Params,
) -> Result<Reply<List<CreditBundle>>, ApiError> {
    let page = params.page();
    let plan_id: Option<PlanId> = params.either("subscription_config_id", "plan_id", rules::id);
    params.checked()?;
    let connection = reads.caught_up(ReadModel::Plans).await?;
    let listed = query::list_bundles(&connection, merchant_id, page.as_query(), plan_id);
    let listed = within(listed).await?;
    let last = listed.items.last().map(|row| row.credit_bundle_id.to_string());
    let shown = listed.items.into_iter().map(CreditBundle::from).collect();
    Ok(Reply::ok(List::new(shown, listed.has_more, last)))
}
