//! `POST /secret_keys`.

use std::convert::Infallible;

use crate::error::{ApiError, AuthError};
use crate::rest::authenticate::Merchant;

/// Refused for all accounts, whatever else the call contains; an operator issues keys.
#[utoipa::path(
    post, path = "/secret_keys", operation_id = "create_secret_key", tag = "secret_keys",
    responses((status = 403, description = "secret_key_issuance_paused")),
)]
pub(super) async fn create(_: Merchant) -> Result<Infallible, ApiError> {
    Err(ApiError::Auth(AuthError::SecretKeyIssuancePaused))
}
