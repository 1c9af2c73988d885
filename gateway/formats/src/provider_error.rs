//! The neutral form of a provider's error.

use crate::json::Json;

/// The most characters of a body that is not in the provider's format, when they become the message.
const MAX_MESSAGE_CHARS: usize = 2000;

/// An error of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    /// OpenAI's code, such as `context_length_exceeded`.
    pub(crate) code: Option<String>,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    InvalidRequest,
    Authentication,
    Billing,
    Permission,
    NotFound,
    Conflict,
    TooLarge,
    RateLimit,
    Server,
    Overloaded,
    Timeout,
}

/// A kind with its usual status, and its names in the formats.
type Row = (ErrorKind, u16, &'static str, &'static str, &'static str);

const KINDS: [Row; 11] = [
    (ErrorKind::InvalidRequest, 400, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
    (ErrorKind::Authentication, 401, "authentication_error", "authentication_error", "UNAUTHENTICATED"),
    (ErrorKind::Billing, 402, "insufficient_quota", "billing_error", "FAILED_PRECONDITION"),
    (ErrorKind::Permission, 403, "permission_error", "permission_error", "PERMISSION_DENIED"),
    (ErrorKind::NotFound, 404, "not_found_error", "not_found_error", "NOT_FOUND"),
    (ErrorKind::Conflict, 409, "conflict_error", "invalid_request_error", "ABORTED"),
    (ErrorKind::TooLarge, 413, "request_too_large", "request_too_large", "INVALID_ARGUMENT"),
    (ErrorKind::RateLimit, 429, "rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"),
    (ErrorKind::Server, 500, "server_error", "api_error", "INTERNAL"),
    (ErrorKind::Overloaded, 503, "overloaded_error", "overloaded_error", "UNAVAILABLE"),
    (ErrorKind::Timeout, 504, "timeout_error", "timeout_error", "DEADLINE_EXCEEDED"),
];

impl ErrorKind {
    /// The kind of an error status.
    pub(crate) fn of_status(status: u16) -> Self {
        match status {
            529 => Self::Overloaded,
            _ => KINDS
                .iter()
                .find(|row| row.1 == status)
                .map_or(if status >= 500 { Self::Server } else { Self::InvalidRequest }, |row| row.0),
        }
    }

    /// The kind of a type or code of OpenAI or Anthropic, or a status of Google.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        if name == "rate_limit_exceeded" {
            return Some(Self::RateLimit);
        }
        KINDS.iter().find(|row| [row.2, row.3, row.4].contains(&name)).map(|row| row.0)
    }

    fn row(self) -> Row {
        *KINDS.iter().find(|row| row.0 == self).expect("every kind has a row")
    }

    pub(crate) fn openai_type(self) -> &'static str {
        self.row().2
    }

    pub(crate) fn anthropic_type(self) -> &'static str {
        self.row().3
    }

    pub(crate) fn google_status(self) -> &'static str {
        self.row().4
    }

    pub(crate) fn status(self) -> u16 {
        self.row().1
    }
}

impl ProviderError {
    /// Reads the body of a provider's error response. All formats have an `error` object with a message, and Google
    /// may put it in a list; anything else becomes the message as it is.
    pub(crate) fn read(status: u16, body: &[u8]) -> Self {
        let document = Json::parse(body).ok();
        let document = document.as_ref().map(|document| match document {
            Json::List(items) => items.first().unwrap_or(document),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Object(_) => document,
        });
        let error = document.and_then(|document| document.get("error"));
        let message = error
            .and_then(|error| error.get("message").or(Some(error)))
            .or_else(|| document.and_then(|document| document.get("message")))
            .and_then(Json::as_text);
        let message = message.map_or_else(|| text_of(status, body), str::to_owned);
        let code = error.and_then(|error| error.get("code")).and_then(Json::as_text).map(str::to_owned);
        Self { kind: ErrorKind::of_status(status), message, code }
    }

    /// Reads the error object of an event.
    pub(crate) fn of_event(error: &Json) -> Self {
        let text = |name: &str| error.get(name).and_then(Json::as_text);
        let status = error.get("code").and_then(Json::as_unsigned).and_then(|code| u16::try_from(code).ok());
        let mut kind = [text("type"), text("status"), text("code")].into_iter().flatten();
        let kind = kind.find_map(ErrorKind::of_name);
        let kind = kind.or(status.map(ErrorKind::of_status)).unwrap_or(ErrorKind::Server);
        let message = text("message").or_else(|| error.as_text()).unwrap_or("The provider failed.");
        Self { kind, message: message.to_owned(), code: text("code").map(str::to_owned) }
    }
}

/// The start of a body that is text, or a sentence about the status.
fn text_of(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() {
        return format!("The provider answered with status {status}.");
    }
    text.chars().take(MAX_MESSAGE_CHARS).collect()
}
