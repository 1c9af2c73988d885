//! `DELETE /customers/{id}`, by id or reference id: its credentials stop at once, its history stays.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::DeleteCustomer;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;

/// 200 with `{"success": true}`.
#[utoipa::path(
    delete, path = "/customers/{customer_id}", operation_id = "delete_customer", tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    responses(
        (status = 200, description = "The customer is gone; its history stays.", body = Deleted),
        (status = 404, description = "customer_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let customer_id = app.customer_id(merchant_id, &name).await?;
    let customer_id = customer_id.ok_or(ApiError::NotFound(Resource::Customer))?;
    app.ledger.submit(DeleteCustomer { merchant_id, customer_id, now: app.now() }).await?;
    Ok(Reply::ok(Deleted::DONE))
}
