//! `/customers/{id}/wallet`, by id or reference id: the customer's wallet and its automatic recharge.

use std::sync::Arc;

use axum::extract::State;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{JsonText, Reply};
use crate::rest::params::Named;
use crate::rest::wallet::{Wallet, WalletChangesBody, update_customer_wallet};

/// 200 with the customer's wallet.
#[utoipa::path(
    get, path = "/customers/{customer_id}/wallet", operation_id = "get_customer_wallet", tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    responses(
        (status = 200, description = "The customer's wallet.", body = Wallet),
        (status = 404, description = "customer_not_found"),
    ),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Wallet>, ApiError> {
    Ok(Reply::ok(Wallet::of_customer(&app, merchant_id, &name, Resource::Customer).await?))
}

/// 200 with the customer's updated wallet.
#[utoipa::path(
    patch, path = "/customers/{customer_id}/wallet", operation_id = "update_customer_wallet", tag = "customers",
    params(("customer_id" = String, Path, description = "The customer's id or reference_id.")),
    request_body = WalletChangesBody,
    responses(
        (status = 200, description = "The customer's updated wallet.", body = Wallet),
        (status = 404, description = "customer_not_found"),
        (status = 501, description = "payments_unavailable"),
    ),
)]
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
    json: JsonText,
) -> Result<Reply<Wallet>, ApiError> {
    Ok(Reply::ok(update_customer_wallet(&app, merchant_id, &name, &json, Resource::Customer).await?))
}
