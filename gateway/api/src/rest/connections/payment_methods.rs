//! `GET /connections/{id}/payment_methods`, by id or the customer's reference id: the payment methods of the customer's wallet.

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
    get, path = "/connections/{connection_id}/payment_methods", operation_id = "list_connection_payment_methods",
    tag = "connections",
    params(("connection_id" = String, Path, description = "The connection's id, or the customer's reference_id.")),
    responses(
        (status = 200, description = "The payment methods.", body = PaymentMethods),
        (status = 404, description = "connection_not_found"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<PaymentMethods>, ApiError> {
    let id = existing_customer(&app, merchant_id, &name, Resource::Connection).await?;
    Ok(Reply::ok(PaymentMethods::of(&app, &reads, merchant_id, Some(id)).await?))
}
