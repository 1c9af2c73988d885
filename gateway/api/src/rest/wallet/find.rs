//! `GET /wallet`.

use std::sync::Arc;

use axum::extract::State;

use super::resource::Wallet;
use crate::app::App;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;

/// 200 with the merchant's own wallet.
#[utoipa::path(
    get, path = "/wallet", operation_id = "find_wallet", tag = "wallet",
    responses((status = 200, description = "The merchant's own wallet.", body = Wallet)),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
) -> Result<Reply<Wallet>, ApiError> {
    Ok(Reply::ok(Wallet::of(&app, merchant_id).await?))
}
