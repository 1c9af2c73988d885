//! What every answer keeps, errors included: `x-service-request-id`, where a key was recognised the `X-RateLimit-*`
//! headers, unless it was found to be good no more, and where a read model lags behind the log `x-service-stale`. Invariant: a handler that panics is
//! answered with the error envelope.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use farthing_core::ids::RequestId;
use futures_util::FutureExt as _;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};

use super::rate_limit::Standing;
use crate::app::App;
use crate::error::{ApiError, ProtocolError, Resource};
use crate::headers::SERVICE_REQUEST_ID;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// An old answer: the read model had not come as far as the log (completion.md section 1).
const STALE: HeaderName = HeaderName::from_static("x-service-stale");

/// What is learnt of a call while it is handled, for the headers of its answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    standing: Arc<OnceLock<Standing>>,
    stale: Arc<AtomicBool>,
}

impl Notes {
    /// Where the caller's key stands; noted once per call.
    pub(super) fn standing(&self, standing: Standing) {
        let _ = self.standing.set(standing);
    }

    /// The answer may be older than the log.
    pub(super) fn stale(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }
}

/// The outermost layer: whatever happens inside, the answer keeps the conventions.
pub(crate) async fn keep_conventions(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let notes = Notes::default();
    request.extensions_mut().insert(notes.clone());
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_| ApiError::internal("a handler panicked").into_response());
    let names_a_good_key = response.status() != StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    if !headers.contains_key(SERVICE_REQUEST_ID) {
        let id = RequestId::new(app.mint.next(app.now())).to_string();
        headers.insert(SERVICE_REQUEST_ID, HeaderValue::from_str(&id).expect("ids are visible ASCII"));
    }
    if let Some(standing) = notes.standing.get().filter(|_| names_a_good_key) {
        headers.insert(LIMIT, standing.limit.into());
        headers.insert(REMAINING, standing.remaining.into());
        headers.insert(RESET, standing.reset_unix_seconds.into());
    }
    if notes.stale.load(Ordering::Relaxed) {
        headers.insert(STALE, HeaderValue::from_static("true"));
    }
    response
}

/// Answers for paths that do not exist.
pub(crate) async fn route_not_found() -> ApiError {
    ApiError::NotFound(Resource::Route)
}

/// Answers for methods that a path does not take; the router adds `Allow`.
pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError::Protocol(ProtocolError::MethodNotAllowed)
}
