//! The headers of every response, errors included: `x-service-request-id`; `X-RateLimit-*` for a valid key; and
//! `x-service-stale` if a read model lags behind the log; rules that keep a browser from running a response that brings
//! none of its own. Invariant: a panic in a handler becomes an error envelope.
//! A long response takes a share of its merchant's memory until its caller has received it.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use farthing_core::ids::{MerchantId, RequestId};
use futures_util::FutureExt as _;
use http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::rate_limit::RateLimitStatus;
use crate::app::App;
use crate::body_memory::{BodyKind, BodyMemory, FREE_BYTES, MemoryShare};
use crate::error::{ApiError, ProtocolError, Resource};
use crate::headers::SERVICE_REQUEST_ID;
use crate::request_id::{answering, answering_at_once};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The read model lags behind the log, so the response may be old (completion.md section 1).
const STALE: HeaderName = HeaderName::from_static("x-service-stale");

/// Facts about a call that its handler notes for the response.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    merchant: Arc<OnceLock<MerchantId>>,
    rate_limit: Arc<OnceLock<RateLimitStatus>>,
    stale: Arc<AtomicBool>,
}

impl Notes {
    /// Notes whose call it is, once per call.
    pub(super) fn merchant(&self, merchant_id: MerchantId) {
        let _ = self.merchant.set(merchant_id);
    }

    /// The memory of a body of this call, if it is known whose call it is.
    pub(super) fn memory(&self, memory: &BodyMemory, kind: BodyKind) -> Option<MemoryShare> {
        self.merchant.get().map(|merchant_id| memory.share(*merchant_id, kind))
    }

    /// Notes the use of the caller's key, once per call.
    pub(super) fn rate_limit(&self, status: RateLimitStatus) {
        let _ = self.rate_limit.set(status);
    }

    /// Notes that the response may be older than the log.
    pub(super) fn stale(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }
}

/// Marks a response whose body has a share of memory of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct HasShare;

/// The outermost layer: adds the headers to every response.
pub(crate) async fn keep_conventions(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (notes, method) = (Notes::default(), request.method().clone());
    request.extensions_mut().insert(notes.clone());
    // A repeated request is answered under the id of the first one.
    let id = RequestId::new(app.mint.next(app.now()));
    let answered = AssertUnwindSafe(answering(id, next.run(request))).catch_unwind().await;
    let panicked = |_| answering_at_once(id, || ApiError::internal("a handler panicked").into_response());
    let mut response = answered.unwrap_or_else(panicked);
    if let Some(share) = notes.memory(&app.body_memory, BodyKind::Response) {
        response = match kept(share, response).await {
            Ok(response) => response,
            Err(full) => answering_at_once(id, || no_memory(full, &method).into_response()),
        };
    }
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

/// The response, which takes its `share` of memory until the last byte is sent.
async fn kept(mut share: MemoryShare, response: Response) -> Result<Response, ApiError> {
    let (mut parts, body) = response.into_parts();
    if parts.extensions.remove::<HasShare>().is_some() {
        return Ok(Response::from_parts(parts, body));
    }
    // The handlers' bodies are whole.
    let length = body.size_hint().exact().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
    if length <= FREE_BYTES {
        return Ok(Response::from_parts(parts, body));
    }
    share.grow_to(length)?;
    let whole = body.collect().await.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(Response::from_parts(parts, Body::from(share.kept_by(whole.to_bytes()))))
}

/// The response in place of one for which there is no memory. What a write has changed stays changed.
fn no_memory(full: ApiError, method: &Method) -> ApiError {
    if method.is_safe() { full } else { ApiError::outcome_unknown("there is no memory for a long response") }
}

/// Responds to unknown paths.
pub(crate) async fn route_not_found() -> ApiError {
    ApiError::NotFound(Resource::Route)
}

/// The response to a method that a path does not have. The router adds `Allow`.
pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError::Protocol(ProtocolError::MethodNotAllowed)
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;
    use crate::error::{GatewayLimit, ServerError};

    fn response(length: usize) -> Response {
        Response::new(Body::from(vec![b'x'; length]))
    }

    #[tokio::test]
    async fn a_long_response_takes_memory_until_its_last_byte_is_sent() {
        let memory = BodyMemory::default();
        let share = || memory.share(MerchantId::new(Ulid::nil()), BodyKind::Response);
        let is_free = || memory.bytes(BodyKind::Response) <= 0.0;
        let mut held = share();
        kept(share(), response(FREE_BYTES)).await.unwrap();
        assert!(is_free());
        let long = kept(share(), response(2 * FREE_BYTES)).await.unwrap();
        assert_eq!(long.body().size_hint().exact(), Some(2 * FREE_BYTES as u64));
        let bytes = long.into_body().collect().await.unwrap().to_bytes();
        assert!(!is_free(), "hyper holds the bytes when the body has ended");
        assert_eq!(bytes.len(), 2 * FREE_BYTES);
        drop(bytes);
        assert!(is_free());
        let grown = (1..).take_while(|times| held.grow_to(times * FREE_BYTES).is_ok());
        assert!(grown.count() > 8);
        let full = kept(share(), response(2 * FREE_BYTES)).await.unwrap_err();
        assert_eq!(full, ApiError::overloaded_by_merchant(GatewayLimit::BodyMemoryOfMerchant));
        kept(share(), response(FREE_BYTES)).await.unwrap();
        assert_eq!(no_memory(full.clone(), &Method::GET), full);
        assert!(matches!(no_memory(full, &Method::PUT), ApiError::Server(ServerError::OutcomeUnknown(_))));
    }
}
