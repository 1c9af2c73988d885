//! `DELETE /subscriptions/{subscription_id}`: it ends with its cycle; at once where the next one could not be paid.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{SubscriptionEdit, UpdateSubscription};
use farthing_projector::ReadModel;
use serde::Serialize;
use utoipa::ToSchema;

use super::find::{named, present};
use super::resource::Subscription;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// The response of a cancellation (completion.md section 10).
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CancelledSubscription {
    #[serde(flatten)]
    deletion: Deleted,
    /// The subscription, which lives on until the end of its cycle, with its pending change.
    subscription: Subscription,
}

/// 200 with the id, and the subscription with its pending change.
#[utoipa::path(
    delete, path = "/subscriptions/{subscription_id}", operation_id = "cancel_subscription", tag = "subscriptions",
    params(("subscription_id" = String, Path, description = "The subscription's id.")),
    responses(
        (status = 200, description = "The subscription, which ends with its cycle.", body = CancelledSubscription),
        (status = 404, description = "subscription_not_found"),
    ),
)]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<CancelledSubscription>, ApiError> {
    let (subscription_id, now) = (named(&name)?, app.now());
    let edit = SubscriptionEdit::Cancel;
    app.submit(merchant_id, UpdateSubscription { merchant_id, subscription_id, edit, now }).await?;
    let connection = reads.caught_up_after_write(ReadModel::Subscriptions, merchant_id).await?;
    let subscription = present(&connection, merchant_id, subscription_id).await?;
    Ok(Reply::ok(CancelledSubscription { deletion: Deleted::id(subscription_id), subscription }))
}
