//! Errors of idempotency keys that were used before.

use farthing_core::ids::RequestId;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use crate::headers::SERVICE_REQUEST_ID;

/// `Retry-After` of a call in flight, in seconds.
const IN_PROGRESS_RETRY_AFTER_SECONDS: u64 = 1;

/// The idempotency key was used before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdempotencyError {
    /// 409: the first call with the idempotency key is in flight.
    #[error("The first call with this idempotency key, {0}, is in progress. Retry later.")]
    InProgress(RequestId),
    /// 409: the first call with the idempotency key has ended, and its answer was not stored.
    #[error("The first call with this idempotency key, {0}, has ended, and its answer was not stored.")]
    Completed(RequestId),
    /// 422: the idempotency key was used for another request.
    #[error("The idempotency key was used for a different request.")]
    KeyReused,
}

impl IdempotencyError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::InProgress(_) => (StatusCode::CONFLICT, "idempotency_in_progress"),
            Self::Completed(_) => (StatusCode::CONFLICT, "idempotency_completed"),
            Self::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
        }
    }

    /// Names the first call's request id, and when to retry while it is in flight.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        let (Self::InProgress(first_call) | Self::Completed(first_call)) = self else { return };
        let id = HeaderValue::try_from(first_call.to_string()).expect("an id is ASCII");
        headers.insert(SERVICE_REQUEST_ID, id);
        if let Self::InProgress(_) = self {
            headers.insert(RETRY_AFTER, IN_PROGRESS_RETRY_AFTER_SECONDS.into());
        }
    }
}
