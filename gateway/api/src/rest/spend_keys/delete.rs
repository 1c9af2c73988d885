//! `DELETE /spend_keys/{id}`: the key is revoked on every gateway before the response; running calls settle.

use std::sync::Arc;

use axum::extract::State;
use farthing_core::command::DeleteSpendKey;

use crate::app::App;
use crate::error::{ApiError, Resource};
use crate::rest::authenticate::Merchant;
use crate::rest::body::{Deleted, Reply};
use crate::rest::params::Named;

/// 200 with the id.
#[utoipa::path(
    delete, path = "/spend_keys/{id}", operation_id = "delete_spend_key", tag = "spend_keys",
    params(("id" = String, Path, description = "The spend key's id.")),
    responses(
        (status = 200, description = "The spend key is dead.", body = Deleted),
        (status = 404, description = "spend_key_not_found"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    Named(name): Named,
) -> Result<Reply<Deleted>, ApiError> {
    let spend_key_id = name.parse().map_err(|_| ApiError::NotFound(Resource::SpendKey))?;
    app.submit(merchant_id, DeleteSpendKey { merchant_id, spend_key_id, now: app.now() }).await?;
    Ok(Reply::ok(Deleted::id(spend_key_id)))
}
