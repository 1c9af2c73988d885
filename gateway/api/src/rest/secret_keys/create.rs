//! `POST /secret_keys`.

use std::convert::Infallible;

use crate::error::{ApiError, AuthError};
use crate::rest::writes::Writes;

/// Refused for all accounts; an operator issues keys.
#[utoipa::path(
    post, path = "/secret_keys", operation_id = "create_secret_key", tag = "secret_keys",
    responses((status = 403, description = "secret_key_issuance_paused")),
)]
pub(super) async fn create(_: Writes) -> Result<Infallible, ApiError> {
    Err(ApiError::Auth(AuthError::SecretKeyIssuancePaused))
}
