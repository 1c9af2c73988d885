//! The errors of the interface. Invariant: [`ApiError`] is closed, and only this folder knows status codes, error
//! codes and messages (interface.md, Errors; completion.md section 2).

mod auth;
mod billing;
mod conflict;
mod forward;
mod gateway_limit;
mod idempotency;
mod input;
mod limits;
mod not_found;
mod protocol;
mod refusal;
mod server;

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;

pub(crate) use self::auth::AuthError;
pub(crate) use self::billing::BillingError;
pub(crate) use self::conflict::ConflictError;
pub(crate) use self::forward::ForwardError;
pub(crate) use self::gateway_limit::GatewayLimit;
pub(crate) use self::idempotency::IdempotencyError;
pub(crate) use self::input::{InputError, Issue};
pub(crate) use self::limits::LimitError;
pub(crate) use self::not_found::Resource;
pub(crate) use self::protocol::ProtocolError;
pub(crate) use self::server::{ServerError, counters_of_503s};

/// Every error that the gateway itself answers, by area. Errors of a provider pass through unchanged and are not
/// listed here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub(crate) enum ApiError {
    /// The input breaks a rule.
    Input(InputError),
    /// The HTTP request has a form that the endpoint does not take.
    Protocol(ProtocolError),
    /// The credential is missing, not valid or not permitted.
    Auth(AuthError),
    /// A limit is reached.
    Limit(LimitError),
    /// The money does not cover the request, or a payment, subscription or checkout session does not permit it.
    Billing(BillingError),
    /// A forwarded call cannot be made, or the provider did not answer it.
    Forward(ForwardError),
    /// The idempotency key was used before.
    Idempotency(IdempotencyError),
    /// The resource does not exist, or belongs to another merchant.
    NotFound(Resource),
    /// The state of the merchant's resources does not allow the change.
    Conflict(ConflictError),
    /// The gateway or the ledger failed.
    Server(ServerError),
}

impl ApiError {
    /// A validation error of one issue.
    pub(crate) fn issue<P: Into<String>>(
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) -> Self {
        Self::validation(vec![Issue::new(path, message)])
    }

    /// A validation error of several issues.
    pub(crate) const fn validation(issues: Vec<Issue>) -> Self {
        Self::Input(InputError::Validation(issues))
    }

    /// A 500. The reason is logged and never sent to the caller.
    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Self::Server(ServerError::Internal(reason.into()))
    }

    /// A 503. The reason is logged and never sent to the caller.
    pub(crate) fn ledger_unavailable(reason: impl Into<String>) -> Self {
        Self::Server(ServerError::LedgerUnavailable(reason.into()))
    }

    /// A 503 whose reason is logged and never sent to the caller: the call may have been carried out.
    pub(crate) fn outcome_unknown(reason: impl Into<String>) -> Self {
        Self::Server(ServerError::OutcomeUnknown(reason.into()))
    }

    /// A 503 because of too much work. The limit that was reached is logged and never sent to the caller.
    pub(crate) const fn overloaded(limit: GatewayLimit) -> Self {
        Self::Server(ServerError::Overloaded(limit))
    }

    /// The same for a limit of one merchant.
    pub(crate) const fn overloaded_by_merchant(limit: GatewayLimit) -> Self {
        Self::Server(ServerError::OverloadedByMerchant(limit))
    }

    /// The HTTP status.
    pub(crate) const fn status(&self) -> StatusCode {
        self.status_and_code().0
    }

    /// The code of the envelope.
    pub(crate) const fn code(&self) -> &'static str {
        self.status_and_code().1
    }

    /// The message of the envelope.
    pub(crate) fn message(&self) -> String {
        self.to_string()
    }

    const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Input(error) => error.status_and_code(),
            Self::Protocol(error) => error.status_and_code(),
            Self::Auth(error) => error.status_and_code(),
            Self::Limit(error) => error.status_and_code(),
            Self::Billing(error) => error.status_and_code(),
            Self::Forward(error) => error.status_and_code(),
            Self::Idempotency(error) => error.status_and_code(),
            Self::NotFound(resource) => (StatusCode::NOT_FOUND, resource.code()),
            Self::Conflict(error) => error.status_and_code(),
            Self::Server(error) => error.status_and_code(),
        }
    }

    /// The issues of the envelope: present for errors about input.
    fn issues(&self) -> Option<Cow<'_, [Issue]>> {
        match self {
            Self::Input(error) => Some(error.issues()),
            Self::Forward(error) => error.issues().map(Cow::Borrowed),
            Self::Protocol(_)
            | Self::Auth(_)
            | Self::Limit(_)
            | Self::Billing(_)
            | Self::Idempotency(_)
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::Server(_) => None,
        }
    }

    /// The headers of the answer.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        match self {
            Self::Limit(error) => error.add_headers(&mut headers),
            Self::Idempotency(error) => error.add_headers(&mut headers),
            Self::Server(error) => error.add_headers(&mut headers),
            Self::Input(_)
            | Self::Protocol(_)
            | Self::Auth(_)
            | Self::Billing(_)
            | Self::Forward(_)
            | Self::NotFound(_)
            | Self::Conflict(_) => {}
        }
        headers
    }

    /// Status, headers and body of the answer. Logs the reason of a 500 or 503.
    pub(crate) fn into_parts(self) -> (StatusCode, HeaderMap, Vec<u8>) {
        if let Self::Server(error) = &self {
            error.log();
        }
        let (status, code) = self.status_and_code();
        let body = Body { message: self.message(), code, status: status.as_u16(), issues: self.issues() };
        let body = serde_json::to_vec(&Envelope { error: body }).expect("an envelope has string keys");
        (status, self.headers(), body)
    }
}

/// The envelope of every error.
#[derive(Serialize)]
struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    message: String,
    code: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    issues: Option<Cow<'a, [Issue]>>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.into_parts().into_response()
    }
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn answered(error: ApiError) -> (StatusCode, HeaderMap, serde_json::Value) {
        let (parts, body) = error.into_response().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn an_error_is_answered_in_the_envelope() {
        let (status, headers, body) = answered(ApiError::issue(["tiers", "0"], "must be an object")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(headers[CONTENT_TYPE], "application/json");
        assert_eq!(
            body,
            serde_json::json!({"error": {
                "message": "The request is not valid; see the issues.", "code": "validation_error", "status": 400,
                "issues": [{"path": ["tiers", "0"], "message": "must be an object"}],
            }})
        );
    }

    #[tokio::test]
    async fn the_reason_of_a_server_error_is_not_sent_to_the_caller() {
        for (error, status) in [
            (ApiError::internal("a password"), StatusCode::INTERNAL_SERVER_ERROR),
            (ApiError::ledger_unavailable("a password"), StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let (answered_status, _, body) = answered(error).await;
            assert_eq!(answered_status, status);
            assert!(!body.to_string().contains("password"), "{body}");
            assert_eq!(body["error"].get("issues"), None);
        }
    }

    #[tokio::test]
    async fn errors_carry_the_headers_of_their_status() {
        for unavailable in [
            ApiError::ledger_unavailable(""),
            ApiError::overloaded(GatewayLimit::Calls),
            ApiError::overloaded_by_merchant(GatewayLimit::CallsOfMerchant),
        ] {
            let (_, headers, body) = answered(unavailable).await;
            assert_eq!(headers[RETRY_AFTER], "1");
            assert_eq!(body["error"]["code"], "ledger_unavailable");
        }
        let limited = LimitError::RateLimitExceeded { retry_after_seconds: 17 };
        let (_, headers, _) = answered(ApiError::Limit(limited)).await;
        assert_eq!(headers[RETRY_AFTER], "17");
        for (retry_after_seconds, seconds) in [(Some(86), "86"), (None, "86400")] {
            let limited = LimitError::RequestLimitExceeded { retry_after_seconds };
            let (_, headers, _) = answered(ApiError::Limit(limited)).await;
            assert_eq!(headers[RETRY_AFTER], seconds);
        }
        let (_, headers, _) = answered(ApiError::Auth(AuthError::HeaderMissing)).await;
        assert_eq!(headers[WWW_AUTHENTICATE], "Bearer");
        let (_, _, body) = answered(ApiError::Input(InputError::CursorInvalid)).await;
        assert_eq!(body["error"]["issues"][0]["path"], serde_json::json!(["cursor"]));
    }
}
