//! `GET /customers/{id}/subscription`, by id or reference id.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::ids::{CustomerId, MerchantId};
use farthing_projector::ReadModel;
use farthing_projector::subscriptions::query;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::existing_customer;
use crate::rest::params::Named;
use crate::rest::reads::Reads;
use crate::rest::subscriptions::resource::Subscription;

/// The customer's subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct CurrentSubscription {
    /// The active subscription, if there is one.
    subscription: Option<Subscription>,
}

impl CurrentSubscription {
    /// The subscription of the merchant's customer.
    pub(in crate::rest) async fn of(
        reads: &Reads,
        merchant_id: MerchantId,
        customer_id: CustomerId,
    ) -> Result<Self, ApiError> {
        let connection = reads.caught_up(ReadModel::Subscriptions, merchant_id).await?;
        let row = within(query::find_active(connection.partition(), merchant_id, customer_id)).await?;
        let subscription = row.map(|row| Subscription::of_row(merchant_id, row)).transpose()?;
        Ok(Self { subscription })
    }
}

/// 200 with the customer's subscription, or `null`.
#[utoipa::path(
    get, path = "/customers/{customer_id}/subscription", operation_id = "get_customer_subscription",
    tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    responses(
        (status = 200, description = "The customer's subscription, or null.", body = CurrentSubscription),
        (status = 404, description = "customer_not_found"),
    ),
)]
pub(super) async fn subscription(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<CurrentSubscription>, ApiError> {
    let id = existing_customer(&app, merchant_id, &name, Resource::Customer).await?;
    Ok(Reply::ok(CurrentSubscription::of(&reads, merchant_id, id).await?))
}
