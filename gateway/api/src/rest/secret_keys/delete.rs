//! `DELETE /secret_keys/{id}`.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::{RevokeSecretKey, Revoker};

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;

/// 200 once the key is revoked on every gateway; 400 for the merchant's last key.
#[utoipa::path(
    delete, path = "/secret_keys/{id}", operation_id = "delete_secret_key", tag = "secret_keys",
    params(("id" = String, Path, description = "The key's id.")),
    responses(
        (status = 200, description = "The key is dead.", body = Deleted),
        (status = 400, description = "secret_key_last_remaining"),
        (status = 404, description = "secret_key_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let Ok(secret_key_id) = name.parse() else { return Err(ApiError::NotFound(Resource::SecretKey)) };
    let now = app.now();
    let command = RevokeSecretKey { revoker: Revoker::Merchant(merchant_id), secret_key_id, now };
    app.submit(merchant_id, command).await?;
    Ok(Reply::ok(Deleted::id(secret_key_id)))
}
