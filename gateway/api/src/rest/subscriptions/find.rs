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
use crate::rest::reads::{MerchantConnection, Reads};

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
    let id = named(&name)?;
    let connection = reads.caught_up(ReadModel::Subscriptions, merchant_id).await?;
    Ok(Reply::ok(present(&connection, merchant_id, id).await?))
}

/// The id that the path names.
pub(super) fn named(name: &str) -> Result<SubscriptionId, ApiError> {
    name.parse().map_err(|_| ApiError::NotFound(Resource::Subscription))
}

/// Reads the merchant's subscription from the read model of subscriptions.
pub(super) async fn present(
    connection: &MerchantConnection,
    merchant_id: MerchantId,
    id: SubscriptionId,
) -> Result<Subscription, ApiError> {
    let row = within(query::find(connection.partition(), merchant_id, id)).await?;
    Subscription::of_row(merchant_id, row.ok_or(ApiError::NotFound(Resource::Subscription))?)
}
