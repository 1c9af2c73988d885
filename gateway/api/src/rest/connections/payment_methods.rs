//! `GET /connections/{id}/payment_methods`, by id or the customer's reference id: what the customer's wallet can be paid with.

use std::sync::Arc;

use axum::extract::State;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::payment_methods::PaymentMethods;
use crate::rest::reads::Reads;

/// 200 with the payment methods that the customer left on hosted pages.
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
    match app.customer_id(merchant_id, &name).await? {
        Some(id) => Ok(Reply::ok(PaymentMethods::of(&app, &reads, merchant_id, Some(id)).await?)),
        None => Err(ApiError::NotFound(Resource::Connection)),
    }
}
