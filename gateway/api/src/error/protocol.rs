//! Errors of an HTTP request's form: its method, target, headers and body.

use http::StatusCode;

/// The HTTP request has a form that the endpoint does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    /// 405: the path has other methods. The router names them in `Allow`.
    #[error("The path does not support this method.")]
    MethodNotAllowed,
    /// 413: the body is larger than the endpoint's limit.
    #[error("The body is too large.")]
    BodyTooLarge,
    /// 414: the request target is longer than the server's limit.
    #[error("The request target is too long.")]
    UriTooLong,
    /// 415: the content type is not JSON.
    #[error("The body must be application/json.")]
    ContentTypeUnsupported,
    /// 431: the request's head is too long, or has too many headers.
    #[error("The request has too many headers, or they are too long.")]
    HeadTooLarge,
}

impl ProtocolError {
    pub(super) const fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::UriTooLong => (StatusCode::URI_TOO_LONG, "uri_too_long"),
            Self::ContentTypeUnsupported => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type_unsupported"),
            Self::HeadTooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large"),
        }
    }
}
