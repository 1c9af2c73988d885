//! `GET /customers/{id}/payment_methods`, by id or reference id: the payment methods of the customer's wallet.

use std::sync::Arc;

use axum::extract::State;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::existing_customer;
use crate::rest::params::Named;
use crate::rest::payment_methods::PaymentMethods;
use crate::rest::reads::Reads;

/// 200 with the payment methods that the customer entered on hosted pages.
#[utoipa::path(
    get, path = "/customers/{customer_id}/payment_methods", operation_id = "list_customer_payment_methods",
    tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    responses(
        (status = 200, description = "The payment methods.", body = PaymentMethods),
        (status = 404, description = "customer_not_found"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<PaymentMethods>, ApiError> {
    let id = existing_customer(&app, merchant_id, &name, Resource::Customer).await?;
    Ok(Reply::ok(PaymentMethods::of(&app, &reads, merchant_id, Some(id)).await?))
}
