//! `/connections/{id}/wallet`, by id or the customer's reference id: the customer's wallet and its automatic recharge.

use std::sync::Arc;

use axum::extract::State;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::params::Named;
use crate::rest::wallet::{Wallet, WalletChangesBody, update_customer_wallet};

/// 200 with the connection's wallet.
#[utoipa::path(
    get, path = "/connections/{connection_id}/wallet", operation_id = "get_connection_wallet", tag = "connections",
    params(("connection_id" = String, Path, description = "The connection's id, or the customer's reference_id.")),
    responses(
        (status = 200, description = "The connection's wallet.", body = Wallet),
        (status = 404, description = "connection_not_found"),
    ),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Wallet>, ApiError> {
    Ok(Reply::ok(Wallet::of_customer(&app, merchant_id, &name, Resource::Connection).await?))
}

/// 200 with the connection's updated wallet.
#[utoipa::path(
    patch, path = "/connections/{connection_id}/wallet", operation_id = "update_connection_wallet", tag = "connections",
    params(("connection_id" = String, Path, description = "The connection's id, or the customer's reference_id.")),
    request_body = WalletChangesBody,
    responses(
        (status = 200, description = "The connection's updated wallet.", body = Wallet),
        (status = 404, description = "connection_not_found"),
        (status = 501, description = "payments_unavailable"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<Wallet>, ApiError> {
    Ok(Reply::ok(update_customer_wallet(&app, merchant_id, &name, &json, Resource::Connection).await?))
}
