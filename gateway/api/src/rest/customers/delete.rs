//! `DELETE /customers/{id}`, by id or reference id: its credentials stop working at once, its history stays.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::DeleteCustomer;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::older_and_newer_names::existing_customer;
use crate::rest::params::Named;

/// 200 with the id.
#[utoipa::path(
    delete, path = "/customers/{customer_id}", operation_id = "delete_customer", tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    responses(
        (status = 200, description = "The customer is deleted; its history stays.", body = Deleted),
        (status = 404, description = "customer_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let customer_id = existing_customer(&app, merchant_id, &name, Resource::Customer).await?;
    app.submit(merchant_id, DeleteCustomer { merchant_id, customer_id, now: app.now() }).await?;
    Ok(Reply::ok(Deleted::id(customer_id)))
}
