//! Errors of credentials: missing, not valid, or not permitted to make the call.

use http::StatusCode;

/// The credential is missing, not valid or not permitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthError {
    /// 401: the request has no credential.
    #[error("The Authorization header is missing.")]
    HeaderMissing,
    /// 401: the value does not have the form of a credential.
    #[error("The credential must have the form \"Bearer <key>\".")]
    HeaderInvalid,
    /// 401: no active secret key matches.
    #[error("The secret key is not valid.")]
    SecretKeyInvalid,
    /// 401: the connection secret matches no connection of this merchant.
    #[error("The connection secret is not valid.")]
    ConnectionSecretInvalid,
    /// 401: the product secret matches no meter of this merchant.
    #[error("The product secret is not valid.")]
    ProductSecretInvalid,
    /// 401: no spend key matches, or it is rotated or deleted, or its customer is deleted.
    #[error("The spend key is not valid.")]
    SpendKeyInvalid,
    /// 401: the spend key has expired.
    #[error("The spend key has expired.")]
    SpendKeyExpired,
    /// 403: the spend key is paused.
    #[error("The spend key is paused.")]
    SpendKeyPaused,
    /// 403: the spend key's list of models does not contain the call's model.
    #[error("The spend key does not allow this call's model.")]
    ModelNotAllowed,
    /// 403: the spend key's list of providers does not contain the call's provider.
    #[error("The spend key does not allow this call's provider.")]
    ProviderNotAllowed,
    /// 403: this interface does not issue secret keys.
    #[error("Only the operator can issue secret keys.")]
    SecretKeyIssuancePaused,
}

impl AuthError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::HeaderMissing => (StatusCode::UNAUTHORIZED, "auth_header_missing"),
            Self::HeaderInvalid => (StatusCode::UNAUTHORIZED, "auth_header_invalid"),
            Self::SecretKeyInvalid => (StatusCode::UNAUTHORIZED, "secret_key_invalid"),
            Self::ConnectionSecretInvalid => (StatusCode::UNAUTHORIZED, "connection_secret_invalid"),
            Self::ProductSecretInvalid => (StatusCode::UNAUTHORIZED, "product_secret_invalid"),
            Self::SpendKeyInvalid => (StatusCode::UNAUTHORIZED, "spend_key_invalid"),
            Self::SpendKeyExpired => (StatusCode::UNAUTHORIZED, "spend_key_expired"),
            Self::SpendKeyPaused => (StatusCode::FORBIDDEN, "spend_key_paused"),
            Self::ModelNotAllowed => (StatusCode::FORBIDDEN, "model_not_allowed"),
            Self::ProviderNotAllowed => (StatusCode::FORBIDDEN, "provider_not_allowed"),
            Self::SecretKeyIssuancePaused => (StatusCode::FORBIDDEN, "secret_key_issuance_paused"),
        }
    }
}
