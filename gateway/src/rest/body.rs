//! Bodies in and out: JSON text of at most 1 MiB comes in, JSON of a resource goes out.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use rust_decimal::Decimal;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::app::App;
use crate::error::ApiError;

/// The most bytes that a body of the standard endpoints may have.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// How long a body may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The text of a JSON body; an empty body counts as `{}`.
#[derive(Debug)]
pub(super) struct JsonText(pub(super) String);

impl FromRequest<Arc<App>> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let announced =
            parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: usize| length > MAX_BODY_BYTES) {
            return Err(ApiError::BodyTooLarge);
        }
        let collected =
            tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
        let Ok(collected) = collected else {
            return Err(ApiError::issue([""; 0], "the body did not come in time"));
        };
        let bytes = match collected {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(ApiError::BodyTooLarge),
            Err(_) => return Err(ApiError::issue([""; 0], "the body broke off")),
        };
        if bytes.is_empty() {
            return Ok(Self("{}".to_owned()));
        }
        if !is_json(&parts.headers) {
            return Err(ApiError::ContentTypeUnsupported);
        }
        let text = String::from_utf8(bytes.into()).map_err(|_| ApiError::issue([""; 0], "must be UTF-8"))?;
        Ok(Self(text))
    }
}

/// `application/json` or `application/<anything>+json`, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The answer of a successful call: a resource as JSON, never an empty body.
#[derive(Debug)]
pub(super) struct Reply<T> {
    status: StatusCode,
    resource: T,
}

impl<T> Reply<T> {
    /// 200.
    pub(super) fn ok(resource: T) -> Self {
        Self { status: StatusCode::OK, resource }
    }

    /// 201.
    pub(super) fn created(resource: T) -> Self {
        Self { status: StatusCode::CREATED, resource }
    }
}

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.resource) {
            Ok(body) => {
                let json = HeaderValue::from_static("application/json");
                (self.status, [(CONTENT_TYPE, json)], body).into_response()
            }
            Err(error) => {
                ApiError::Internal(format!("a resource cannot be written: {error}")).into_response()
            }
        }
    }
}

/// A decimal shown as a JSON number, with all its digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExactNumber(pub(super) Decimal);

impl Serialize for ExactNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.normalize().to_string();
        RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// An instant shown in ISO 8601 with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timestamp(pub(super) DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_becomes_a_number_with_all_its_digits() {
        let write =
            |text: &str| serde_json::to_string(&ExactNumber(Decimal::from_str_exact(text).unwrap())).unwrap();
        assert_eq!(write("1000000000000000.0000000001"), "1000000000000000.0000000001");
        assert_eq!(write("10.500"), "10.5");
        assert_eq!(write("0"), "0");
        assert_eq!(write("-0"), "0");
    }

    #[test]
    fn json_is_known_by_its_content_type() {
        let with = |value: &'static str| {
            is_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]))
        };
        assert!(with("application/json"));
        assert!(with("Application/JSON; charset=utf-8"));
        assert!(with("application/vnd.api+json"));
        assert!(!with("text/plain"));
        assert!(!with("application/x-www-form-urlencoded"));
        assert!(!is_json(&HeaderMap::new()));
    }
}
