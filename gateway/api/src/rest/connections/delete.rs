//! `DELETE /connections/{id}`, by id or the customer's reference id: deletes the customer of the connection.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{CustomerRefusal, DeleteCustomer, Refusal};
use farthing_log::appender;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;

/// 200 with the id.
#[utoipa::path(
    delete, path = "/connections/{connection_id}", operation_id = "delete_connection", tag = "connections",
    params(("connection_id" = String, Path, description = "The connection's id, or the customer's reference_id.")),
    responses(
        (status = 200, description = "The connection is deleted; its history stays.", body = Deleted),
        (status = 404, description = "connection_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let unknown = ApiError::NotFound(Resource::Connection);
    let Some(customer_id) = app.customer_id(merchant_id, &name).await? else { return Err(unknown) };
    let command = DeleteCustomer { merchant_id, customer_id, now: app.now() };
    match app.submit(merchant_id, command).await {
        Ok(()) => Ok(Reply::ok(Deleted::id(customer_id))),
        // Another call deleted it first.
        Err(appender::Error::Refused(Refusal::Customer(CustomerRefusal::NotFound))) => Err(unknown),
        Err(error) => Err(error.into()),
    }
}
