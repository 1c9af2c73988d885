//! Errors in each provider's own shape.

use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;

use super::response::{Call, MockResponse};

/// Whose API a call uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    /// OpenAI's, and every path that is nobody's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
    /// Google's.
    Google,
    /// Cohere's.
    Cohere,
    /// Amazon Bedrock's.
    Bedrock,
}

/// Overloaded, as Anthropic says it.
const OVERLOADED: u16 = 529;

impl Api {
    /// The API of a call, by its path and headers.
    pub(super) fn of(call: &Call<'_>) -> Self {
        let path = call.head.uri.path();
        if path.starts_with("/v1/messages") || call.head.headers.contains_key("anthropic-version") {
            return Self::Anthropic;
        }
        if path.starts_with("/v2/") {
            return Self::Cohere;
        }
        if path.starts_with("/model/") {
            return Self::Bedrock;
        }
        let names_method = path.contains("/models/") && path.contains(':');
        let is_googles = path.starts_with("/v1beta/") || names_method || {
            let headers = &call.head.headers;
            headers.contains_key("x-goog-api-key") || headers.contains_key("x-goog-api-client")
        };
        if is_googles && !path.contains("/openai/") { Self::Google } else { Self::OpenAi }
    }

    /// An error. Of 429 and 529, the caller is asked to wait for a second.
    pub(super) fn error(self, status: StatusCode, message: &str) -> MockResponse {
        let code = status.as_u16();
        let body = match self {
            Self::OpenAi => {
                let (kind, name) = openai_names(code);
                json!({"error": {"message": message, "type": kind, "param": null, "code": name}})
            }
            Self::Anthropic => {
                let error = json!({"type": anthropic_name(code), "message": message});
                json!({"type": "error", "error": error, "request_id": "req_mock"})
            }
            Self::Google => {
                json!({"error": {"code": code, "message": message, "status": google_name(code)}})
            }
            Self::Cohere | Self::Bedrock => json!({"message": message}),
        };
        let mut response = MockResponse { status, ..MockResponse::json(body.to_string(), None) };
        if self == Self::Bedrock {
            let name = HeaderValue::from_static(bedrock_name(code));
            response.headers.push((HeaderName::from_static("x-amzn-errortype"), name));
        }
        if code == 429 || code == OVERLOADED {
            response.headers.push((header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
        response
    }
}

/// The error that the control `status` asks for, unless a control sets the body itself.
pub(super) fn asked_for(call: &Call<'_>) -> Option<MockResponse> {
    let code = call.controls.number("status").and_then(|code| u16::try_from(code).ok())?;
    let status = StatusCode::from_u16(code).ok().filter(|status| status.as_u16() >= 400)?;
    if call.controls.text("body").is_some() || call.controls.text("usage").is_some() {
        return None;
    }
    Some(Api::of(call).error(status, "the mock provider was asked for this error"))
}

/// The type and the code.
const fn openai_names(code: u16) -> (&'static str, Option<&'static str>) {
    match code {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        404 => ("invalid_request_error", Some("not_found")),
        429 => ("requests", Some("rate_limit_exceeded")),
        400..=499 => ("invalid_request_error", None),
        _ => ("server_error", None),
    }
}

const fn anthropic_name(code: u16) -> &'static str {
    match code {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        OVERLOADED => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

const fn google_name(code: u16) -> &'static str {
    match code {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | OVERLOADED => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        400..=499 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

const fn bedrock_name(code: u16) -> &'static str {
    match code {
        401 | 403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        408 => "ModelTimeoutException",
        424 => "ModelErrorException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        400..=499 => "ValidationException",
        _ => "InternalServerException",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::mock_provider::endpoints::tests::post;

    #[test]
    fn an_error_has_the_shape_of_its_provider() {
        let body = r#"{"messages":[],"contents":[]}"#;
        for (path, pointer, name, retry) in [
            ("/v1/chat/completions?status=401", "/error/code", "invalid_api_key", None),
            ("/v1/chat/completions?status=429", "/error/code", "rate_limit_exceeded", Some("1")),
            ("/v1/messages?status=529", "/error/type", "overloaded_error", Some("1")),
            ("/v1/messages?status=500", "/error/type", "api_error", None),
            ("/v1beta/models/m:generateContent?status=429", "/error/status", "RESOURCE_EXHAUSTED", Some("1")),
            ("/v1/models/m:streamGenerateContent?status=500", "/error/status", "INTERNAL", None),
        ] {
            let (text, response) = post(path, body);
            let json: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json.pointer(pointer).and_then(Value::as_str), Some(name), "{path}: {text}");
            assert!(path.ends_with(response.status.as_str()), "{path}");
            assert_eq!(response.usage, None, "{path}");
            let retries = response.headers.iter().find(|(name, _)| name == "retry-after");
            assert_eq!(retries.and_then(|(_, value)| value.to_str().ok()), retry, "{path}");
        }
    }
}
