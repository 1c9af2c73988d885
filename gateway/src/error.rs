//! The errors of the interface. Invariant: [`ApiError`] is closed, and it alone knows status codes and the words
//! of the error envelope (interface.md, Errors; completion.md section 2).

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use farthing_ledger::command::Refusal;
use farthing_ledger::log::appender;
use farthing_ledger::money::Amount;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;

/// Seconds after which a caller may ask again when the ledger is away.
const LEDGER_RETRY_AFTER_SECONDS: u64 = 1;

/// One thing wrong with the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Issue {
    /// Where: names and indices from the outermost; empty for the whole input.
    pub(crate) path: Vec<String>,
    /// What is wrong, as the end of a sentence that begins with the path.
    pub(crate) message: String,
}

impl Issue {
    /// `message` about the thing at `path`.
    pub(crate) fn new<P: Into<String>>(
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) -> Self {
        Self { path: path.into_iter().map(Into::into).collect(), message: message.into() }
    }
}

/// A kind of thing that may not be found: the first part of `<resource>_not_found`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// `customer_not_found`
    Customer,
    /// `connection_not_found`
    Connection,
    /// `meter_not_found`
    Meter,
    /// `request_not_found`
    Request,
    /// `spend_key_not_found`
    SpendKey,
    /// `route_not_found`
    Route,
}

impl Resource {
    const fn code_and_message(self) -> (&'static str, &'static str) {
        match self {
            Self::Customer => ("customer_not_found", "There is no such customer."),
            Self::Connection => ("connection_not_found", "There is no such connection."),
            Self::Meter => ("meter_not_found", "There is no such meter."),
            Self::Request => ("request_not_found", "There is no such request."),
            Self::SpendKey => ("spend_key_not_found", "There is no such spend key."),
            Self::Route => ("route_not_found", "There is nothing at this path."),
        }
    }
}

/// Everything that the gateway itself answers other than success. A provider's own errors pass through and are
/// none of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// 400: the input breaks a rule; says which.
    Validation(Vec<Issue>),
    /// 400: the cursor is not the id of an item of this merchant's list.
    CursorInvalid,
    /// 400: the forward token is base64 of something that is not the JSON wanted.
    ForwardTokenJsonInvalid(Vec<Issue>),
    /// 400: no `u`.
    ForwardUrlMissing,
    /// 400: `u` is not a URL that may be forwarded to; says why.
    ForwardUrlInvalid(&'static str),
    /// 400: `u` leads to an address that is not allowed.
    ForwardUrlForbidden,
    /// 400: the metadata of a forwarded call breaks a rule; says which.
    MetadataInvalid(Vec<Issue>),
    /// 401: no credential.
    AuthHeaderMissing,
    /// 401: the credential is not of a form that could be one.
    AuthHeaderInvalid,
    /// 401: no such secret key.
    SecretKeyInvalid,
    /// 401: the connection secret names no connection of this merchant.
    ConnectionSecretInvalid,
    /// 401: the product secret names no meter of this merchant.
    ProductSecretInvalid,
    /// 401: no such spend key, or one that cannot be used here.
    SpendKeyInvalid,
    /// 402: the money available does not cover the hold.
    InsufficientBalance {
        /// Balance minus open holds.
        available: Amount,
        /// The hold.
        needed: Amount,
    },
    /// 403: nobody issues secret keys over this interface.
    SecretKeyIssuancePaused,
    /// 404: no such thing, or another merchant's.
    NotFound(Resource),
    /// 405: the path has other methods; the router names them in `Allow`.
    MethodNotAllowed,
    /// 409: another meter of the merchant has the slug.
    MeterSlugConflict,
    /// 413: the body is larger than the endpoint takes.
    BodyTooLarge,
    /// 415: the body is not JSON by its content type.
    ContentTypeUnsupported,
    /// 429: too many calls with this key.
    RateLimitExceeded {
        /// Until the next window.
        retry_after_seconds: u64,
    },
    /// 500: our own fault; the text goes to the process's log, never to the caller.
    Internal(String),
    /// 502: no connection to the provider.
    ProviderUnreachable,
    /// 503: the ledger is away; nothing was charged. The text goes to the process's log.
    LedgerUnavailable(String),
    /// 504: the provider did not answer in time.
    ProviderTimeout,
}

impl ApiError {
    /// A validation error of one issue.
    pub(crate) fn issue<P: Into<String>>(
        path: impl IntoIterator<Item = P>,
        message: impl Into<String>,
    ) -> Self {
        Self::Validation(vec![Issue::new(path, message)])
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        self.wire().0
    }

    /// The code of the envelope.
    #[cfg(test)]
    pub(crate) fn code(&self) -> &'static str {
        self.wire().1
    }

    /// Status, code and message: the whole table of errors.
    fn wire(&self) -> (StatusCode, &'static str, String) {
        use StatusCode as S;
        let (status, code, message) = match self {
            Self::Validation(_) => {
                (S::BAD_REQUEST, "validation_error", "The request is not valid; see the issues.")
            }
            Self::CursorInvalid => {
                (S::BAD_REQUEST, "cursor_invalid", "The cursor is not the id of an item of this list.")
            }
            Self::ForwardTokenJsonInvalid(_) => (
                S::BAD_REQUEST,
                "forward_token_json_invalid",
                "The forward token is not base64 of the JSON wanted.",
            ),
            Self::ForwardUrlMissing => (
                S::BAD_REQUEST,
                "forward_url_missing",
                "The query parameter u must name the URL to forward to.",
            ),
            Self::ForwardUrlInvalid(why) => {
                return (S::BAD_REQUEST, "forward_url_invalid", format!("The URL to forward to {why}."));
            }
            Self::ForwardUrlForbidden => (
                S::BAD_REQUEST,
                "forward_url_forbidden",
                "The URL to forward to leads to an address not allowed.",
            ),
            Self::MetadataInvalid(_) => {
                (S::BAD_REQUEST, "metadata_invalid", "The metadata is not valid; see the issues.")
            }
            Self::AuthHeaderMissing => {
                (S::UNAUTHORIZED, "auth_header_missing", "The Authorization header is missing.")
            }
            Self::AuthHeaderInvalid => (
                S::UNAUTHORIZED,
                "auth_header_invalid",
                "The credential is not of the form \"Bearer <key>\".",
            ),
            Self::SecretKeyInvalid => (S::UNAUTHORIZED, "secret_key_invalid", "The secret key is not valid."),
            Self::ConnectionSecretInvalid => {
                (S::UNAUTHORIZED, "connection_secret_invalid", "The connection secret is not valid.")
            }
            Self::ProductSecretInvalid => {
                (S::UNAUTHORIZED, "product_secret_invalid", "The product secret is not valid.")
            }
            Self::SpendKeyInvalid => (S::UNAUTHORIZED, "spend_key_invalid", "The spend key is not valid."),
            Self::InsufficientBalance { available, needed } => {
                let message =
                    format!("The balance available, {available}, does not cover this call's {needed}.");
                return (S::PAYMENT_REQUIRED, "insufficient_balance", message);
            }
            Self::SecretKeyIssuancePaused => {
                (S::FORBIDDEN, "secret_key_issuance_paused", "Secret keys are issued by the operator only.")
            }
            Self::NotFound(resource) => {
                let (code, message) = resource.code_and_message();
                (S::NOT_FOUND, code, message)
            }
            Self::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "method_not_allowed", "The path does not take this method.")
            }
            Self::MeterSlugConflict => {
                (S::CONFLICT, "meter_slug_conflict", "Another meter has this slug already.")
            }
            Self::BodyTooLarge => (S::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large."),
            Self::ContentTypeUnsupported => {
                (S::UNSUPPORTED_MEDIA_TYPE, "content_type_unsupported", "The body must be application/json.")
            }
            Self::RateLimitExceeded { .. } => {
                (S::TOO_MANY_REQUESTS, "rate_limit_exceeded", "Too many requests with this key.")
            }
            Self::Internal(_) => {
                (S::INTERNAL_SERVER_ERROR, "rest_internal_server_error", "Something went wrong on our side.")
            }
            Self::ProviderUnreachable => {
                (S::BAD_GATEWAY, "provider_unreachable", "The provider could not be reached.")
            }
            Self::LedgerUnavailable(_) => (
                S::SERVICE_UNAVAILABLE,
                "ledger_unavailable",
                "The ledger is unavailable; nothing was charged.",
            ),
            Self::ProviderTimeout => {
                (S::GATEWAY_TIMEOUT, "provider_timeout", "The provider did not answer in time.")
            }
        };
        (status, code, message.to_owned())
    }

    /// What is wrong with the input, where the error is about input.
    fn issues(&self) -> Option<Cow<'_, [Issue]>> {
        match self {
            Self::Validation(issues)
            | Self::ForwardTokenJsonInvalid(issues)
            | Self::MetadataInvalid(issues) => Some(Cow::Borrowed(issues)),
            Self::CursorInvalid => Some(Cow::Owned(vec![Issue::new(["cursor"], "is not the id of an item")])),
            Self::ForwardUrlMissing
            | Self::ForwardUrlInvalid(_)
            | Self::ForwardUrlForbidden
            | Self::AuthHeaderMissing
            | Self::AuthHeaderInvalid
            | Self::SecretKeyInvalid
            | Self::ConnectionSecretInvalid
            | Self::ProductSecretInvalid
            | Self::SpendKeyInvalid
            | Self::InsufficientBalance { .. }
            | Self::SecretKeyIssuancePaused
            | Self::NotFound(_)
            | Self::MethodNotAllowed
            | Self::MeterSlugConflict
            | Self::BodyTooLarge
            | Self::ContentTypeUnsupported
            | Self::RateLimitExceeded { .. }
            | Self::Internal(_)
            | Self::ProviderUnreachable
            | Self::LedgerUnavailable(_)
            | Self::ProviderTimeout => None,
        }
    }

    /// The headers that go with the status.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::RateLimitExceeded { retry_after_seconds } = self {
            headers.insert(RETRY_AFTER, (*retry_after_seconds).into());
        }
        if let Self::LedgerUnavailable(_) = self {
            headers.insert(RETRY_AFTER, LEDGER_RETRY_AFTER_SECONDS.into());
        }
        headers
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
        if let Self::Internal(why) = &self {
            tracing::error!(why, "answering 500");
        }
        if let Self::LedgerUnavailable(why) = &self {
            tracing::warn!(why, "answering 503");
        }
        let (status, code, message) = self.wire();
        let body = Body { message, code, status: status.as_u16(), issues: self.issues() };
        let body = serde_json::to_vec(&Envelope { error: body }).expect("an envelope has string keys");
        (status, self.headers(), body).into_response()
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::SecretKeyInvalid => Self::SecretKeyInvalid,
            Refusal::ConnectionSecretInvalid => Self::ConnectionSecretInvalid,
            Refusal::ProductSecretInvalid => Self::ProductSecretInvalid,
            Refusal::CustomerNotFound => Self::NotFound(Resource::Customer),
            Refusal::MeterNotFound => Self::NotFound(Resource::Meter),
            Refusal::SpendKeyNotFound => Self::NotFound(Resource::SpendKey),
            Refusal::MeterSlugConflict => Self::MeterSlugConflict,
            Refusal::InsufficientBalance { available, needed } => {
                Self::InsufficientBalance { available, needed }
            }
            Refusal::Amount(why) => Self::issue(["amount"], why.to_string()),
            Refusal::AmountNotPositive => Self::issue(["amount"], "must be above zero"),
            Refusal::MerchantNotFound | Refusal::RequestNotOpen => Self::Internal(refusal.to_string()),
        }
    }
}

impl From<appender::Error> for ApiError {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(refusal) => refusal.into(),
            appender::Error::Unavailable(why) => Self::LedgerUnavailable(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn answered(error: ApiError) -> (StatusCode, HeaderMap, serde_json::Value) {
        let (parts, body) = error.into_response().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn an_error_is_told_in_the_envelope() {
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
    async fn what_is_our_own_business_stays_with_us() {
        for (error, status) in [
            (ApiError::Internal("a password".to_owned()), StatusCode::INTERNAL_SERVER_ERROR),
            (ApiError::LedgerUnavailable("a password".to_owned()), StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let (answered_status, _, body) = answered(error).await;
            assert_eq!(answered_status, status);
            assert!(!body.to_string().contains("password"), "{body}");
            assert_eq!(body["error"].get("issues"), None);
        }
    }

    #[tokio::test]
    async fn errors_carry_the_headers_of_their_status() {
        let (_, headers, _) = answered(ApiError::RateLimitExceeded { retry_after_seconds: 17 }).await;
        assert_eq!(headers[RETRY_AFTER], "17");
        let (_, headers, _) = answered(ApiError::AuthHeaderMissing).await;
        assert_eq!(headers[WWW_AUTHENTICATE], "Bearer");
        let (_, _, body) = answered(ApiError::CursorInvalid).await;
        assert_eq!(body["error"]["issues"][0]["path"], serde_json::json!(["cursor"]));
    }
}
