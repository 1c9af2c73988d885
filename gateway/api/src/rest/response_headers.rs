//! The headers of every response, errors included: `x-service-request-id`; `X-RateLimit-*` for a valid key; and
//! `x-service-stale` if a read model lags behind the log; rules that keep a browser from running a response that brings
//! none of its own. Invariant: a panic in a handler becomes an error envelope.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use farthing_core::ids::RequestId;
use futures_util::FutureExt as _;
use http::StatusCode;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};

use super::rate_limit::RateLimitStatus;
use crate::app::App;
use crate::error::{ApiError, ProtocolError, Resource};
use crate::headers::SERVICE_REQUEST_ID;
use crate::request_id::{answering, answering_at_once};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The read model lags behind the log, so the response may be old (completion.md section 1).
const STALE: HeaderName = HeaderName::from_static("x-service-stale");

/// Facts about a call that its handler notes for the headers of the response.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    rate_limit: Arc<OnceLock<RateLimitStatus>>,
    stale: Arc<AtomicBool>,
}

impl Notes {
    /// Notes the use of the caller's key, once per call.
    pub(super) fn rate_limit(&self, status: RateLimitStatus) {
        let _ = self.rate_limit.set(status);
    }

    /// Notes that the response may be older than the log.
    pub(super) fn stale(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }
}

/// The outermost layer: adds the headers to every response.
pub(crate) async fn keep_conventions(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let notes = Notes::default();
    request.extensions_mut().insert(notes.clone());
    // A repeated request is answered under the id of the first one.
    let id = RequestId::new(app.mint.next(app.now()));
    let answered = AssertUnwindSafe(answering(id, next.run(request))).catch_unwind().await;
    let panicked = |_| answering_at_once(id, || ApiError::internal("a handler panicked").into_response());
    let mut response = answered.unwrap_or_else(panicked);
    let is_key_valid = response.status() != StatusCode::UNAUTHORIZED;
    let headers = response.headers_mut();
    if !headers.contains_key(SERVICE_REQUEST_ID) {
        headers.insert(
            SERVICE_REQUEST_ID,
            HeaderValue::from_str(&id.to_string()).expect("ids are visible ASCII"),
        );
    }
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static("sandbox"));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    if let Some(status) = notes.rate_limit.get().filter(|_| is_key_valid) {
        headers.insert(LIMIT, status.limit.into());
        headers.insert(REMAINING, status.remaining.into());
        headers.insert(RESET, status.reset_unix_seconds.into());
    }
    if notes.stale.load(Ordering::Relaxed) {
        headers.insert(STALE, HeaderValue::from_static("true"));
    }
    response
}

/// Responds to unknown paths.
pub(crate) async fn route_not_found() -> ApiError {
    ApiError::NotFound(Resource::Route)
}

/// The response to a method that a path does not have. The router adds `Allow`.
pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError::Protocol(ProtocolError::MethodNotAllowed)
}
