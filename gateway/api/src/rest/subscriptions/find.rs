//! `GET /subscriptions/{subscription_id}`, cancelled ones too.

use farthing_core::ids::{MerchantId, SubscriptionId};
use farthing_projector::ReadModel;
use farthing_projector::subscriptions::query;

use super::resource::Subscription;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the subscription.
#[utoipa::path(
    get, path = "/subscriptions/{subscription_id}", operation_id = "get_subscription", tag = "subscriptions",
    params(("subscription_id" = String, Path, description = "The subscription's id.")),
    responses(
        (status = 200, description = "The subscription.", body = Subscription),
        (status = 404, description = "subscription_not_found"),
    ),
)]
pub(super) async fn find(
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<Subscription>, ApiError> {
    Ok(Reply::ok(present(&reads, merchant_id, named(&name)?).await?))
}

/// The id that the path names.
pub(super) fn named(name: &str) -> Result<SubscriptionId, ApiError> {
    name.parse().map_err(|_| ApiError::NotFound(Resource::Subscription))
}

/// Reads the merchant's subscription.
pub(super) async fn present(
    reads: &Reads,
    merchant_id: MerchantId,
    id: SubscriptionId,
) -> Result<Subscription, ApiError> {
    let connection = reads.caught_up(ReadModel::Subscriptions, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, id)).await?;
    Subscription::of_row(merchant_id, row.ok_or(ApiError::NotFound(Resource::Subscription))?)
}
