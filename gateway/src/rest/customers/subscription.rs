//! `GET /customers/{id}/subscription`, by id or reference id.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::openapi::values::AnyObject;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;

/// What a customer is subscribed to.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct CurrentSubscription {
    /// `null`: no customer has a subscription yet.
    #[schema(value_type = Option<AnyObject>)]
    subscription: (),
}

impl CurrentSubscription {
    /// Of a customer without one.
    pub(in crate::rest) const NONE: Self = Self { subscription: () };
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
    Named(name): Named,
) -> Result<Reply<CurrentSubscription>, ApiError> {
    match app.customer_id(merchant_id, &name).await? {
        Some(_) => Ok(Reply::ok(CurrentSubscription::NONE)),
        None => Err(ApiError::NotFound(Resource::Customer)),
    }
}
