//! `GET /connections/{id}`, by id or the customer's reference id.

use std::sync::Arc;

use axum::extract::State;
use farthing_projector::ReadModel;
use farthing_projector::connections::query;

use super::resource::Connection;
use crate::app::App;
use crate::db::within;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::params::Named;
use crate::rest::reads::Reads;

/// 200 with the connection.
#[utoipa::path(
    get, path = "/connections/{connection_id}", operation_id = "get_connection", tag = "connections",
    params(("connection_id" = String, Path, description = "The connection's id, or the customer's reference_id.")),
    responses(
        (status = 200, description = "The connection.", body = Connection),
        (status = 404, description = "connection_not_found"),
    ),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Named(name): Named,
) -> Result<Reply<Connection>, ApiError> {
    let unknown = ApiError::NotFound(Resource::Connection);
    let Some(id) = app.customer_id(merchant_id, &name).await? else { return Err(unknown) };
    let connection = reads.caught_up(ReadModel::Connections, merchant_id).await?;
    let row = within(query::find(connection.partition(), merchant_id, id)).await?.ok_or(unknown)?;
    let now = app.merchants_now(merchant_id).await?;
    Ok(Reply::ok(Connection::new(row, now, &app.server_key)))
}
