//! Errors of changes that conflict with the merchant's other resources.

use http::StatusCode;

/// The state of the merchant's resources does not allow the change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConflictError {
    /// 400: the merchant's only secret key cannot be revoked.
    #[error("The last secret key cannot be deleted. Have another one issued first.")]
    SecretKeyLastRemaining,
    /// 409: another customer of the merchant has the reference id.
    #[error("Another customer already has this reference id.")]
    ReferenceId,
    /// 409: another meter of the merchant has the slug.
    #[error("Another meter already has this slug.")]
    MeterSlug,
}

impl ConflictError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::SecretKeyLastRemaining => (StatusCode::BAD_REQUEST, "secret_key_last_remaining"),
            Self::ReferenceId => (StatusCode::CONFLICT, "reference_id_conflict"),
            Self::MeterSlug => (StatusCode::CONFLICT, "meter_slug_conflict"),
        }
    }
}
