//! `PATCH /subscriptions/{subscription_id}`: the bundle to buy when the credit is used up.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{SubscriptionEdit, UpdateSubscription};
use farthing_core::ids::CreditBundleId;
use farthing_projector::ReadModel;
use serde::Deserialize;
use utoipa::ToSchema;

use super::find::{named, present};
use super::resource::Subscription;
use crate::app::App;
use crate::error::ApiError;
use crate::input::{self, Patch};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// What to change of a subscription. An absent field stays.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SubscriptionChanges)]
struct SubscriptionChangesBody {
    /// One of the plan's bundles; `null` turns automatic top-up off.
    #[serde(default)]
    #[schema(value_type = Option<CreditBundleId>)]
    auto_top_up_bundle_id: Patch<CreditBundleId>,
}

/// 200 with the updated subscription.
#[utoipa::path(
    patch, path = "/subscriptions/{subscription_id}", operation_id = "update_subscription", tag = "subscriptions",
    params(("subscription_id" = String, Path, description = "The subscription's id.")),
    request_body = SubscriptionChangesBody,
    responses(
        (status = 200, description = "The updated subscription.", body = Subscription),
        (status = 400, description = "credit_bundle_plan_mismatch"),
        (status = 404, description = "subscription_not_found credit_bundle_not_found"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<Subscription>, ApiError> {
    let body: SubscriptionChangesBody = input::body(&json)?;
    let (subscription_id, now) = (named(&name)?, app.now());
    let edit = SubscriptionEdit::AutoTopUp(body.auto_top_up_bundle_id.edit(|id| id));
    app.submit(merchant_id, UpdateSubscription { merchant_id, subscription_id, edit, now }).await?;
    let connection = reads.caught_up_after_write(ReadModel::Subscriptions, merchant_id).await?;
    Ok(Reply::ok(present(&connection, merchant_id, subscription_id).await?))
}
