//! `POST /secret_keys`.

use std::convert::Infallible;

use crate::error::ApiError;
use crate::rest::authenticate::Merchant;

/// Refused for all accounts: an operator issues keys.
pub(in crate::rest) async fn create(_: Merchant) -> Result<Infallible, ApiError> {
    Err(ApiError::SecretKeyIssuancePaused)
}
