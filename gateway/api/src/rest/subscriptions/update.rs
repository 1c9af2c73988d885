//! `PATCH /subscriptions/{subscription_id}`: the bundle that is bought when the credit is used up.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{SubscriptionEdit, UpdateSubscription};
use farthing_core::ids::CreditBundleId;
use utoipa::ToSchema;

use super::find::{named, present};
use super::resource::Subscription;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::fields::Fields;
use crate::rest::params::Named;
use crate::rest::reads::Reads;
use crate::rules;

/// What may change of a subscription; what is absent stays.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read by hand")]
struct SubscriptionChanges {
    /// One of the plan's bundles; `null`: none is bought.
    auto_top_up_bundle_id: Option<CreditBundleId>,
}

/// 200 with the subscription as it is now.
#[utoipa::path(
    patch, path = "/subscriptions/{subscription_id}", operation_id = "update_subscription", tag = "subscriptions",
    params(("subscription_id" = String, Path, description = "The subscription's id.")),
    request_body = SubscriptionChanges,
    responses(
        (status = 200, description = "The subscription as it is now.", body = Subscription),
        (status = 400, description = "credit_bundle_plan_mismatch"),
        (status = 404, description = "subscription_not_found credit_bundle_not_found"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
    JsonText(json): JsonText,
) -> Result<Reply<Subscription>, ApiError> {
    let mut body = Fields::of(&json)?;
    let bundle = body.edit("auto_top_up_bundle_id", |body, name| body.ruled(name, rules::id));
    body.checked()?;
    let (subscription_id, now) = (named(&name)?, app.now());
    let edit = SubscriptionEdit::AutoTopUp(bundle);
    app.ledger.submit(UpdateSubscription { merchant_id, subscription_id, edit, now }).await?;
    Ok(Reply::ok(present(&reads, merchant_id, subscription_id).await?))
}
