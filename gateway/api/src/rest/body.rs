//! Request bodies as JSON text of at most 1 MiB, and responses as JSON. A long body takes a share of its merchant's memory.

use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use rust_decimal::Decimal;
use serde::{Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::openapi::schema::{KnownFormat, SchemaFormat, Type};
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::response_headers::Notes;
use crate::app::App;
use crate::body_memory::{BodyKind, MemoryShare};
use crate::error::{ApiError, ProtocolError};
use crate::idempotency::StoredResponse;

/// The largest body of the standard endpoints, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The text of an empty body.
const EMPTY: &str = "{}";

/// The text of a JSON body; an empty body counts as `{}`. To be extracted after the merchant, who has the memory for it.
#[derive(Debug)]
pub(super) struct JsonText(Bytes);

impl Deref for JsonText {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.0).expect("it was checked when it was read")
    }
}

impl FromRequest<Arc<App>> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let body = whole_body(app, &parts, body).await?;
        let is_empty = json_text(&parts.headers, &body)? == EMPTY;
        Ok(Self(if is_empty { Bytes::from_static(EMPTY.as_bytes()) } else { body }))
    }
}

/// The whole body of a call, which takes memory of the merchant whose call it is.
pub(super) async fn whole_body(app: &App, parts: &Parts, body: Body) -> Result<Bytes, ApiError> {
    let notes = parts.extensions.get::<Notes>();
    let share = notes.and_then(|notes| notes.memory(&app.body_memory, BodyKind::Request));
    collect(app.timeouts.body, &parts.headers, body, share).await
}

/// Reads a whole body of at most [`MAX_BODY_BYTES`], which must be received within `timeout` and takes `share`.
async fn collect(
    timeout: Duration,
    headers: &HeaderMap,
    body: Body,
    share: Option<MemoryShare>,
) -> Result<Bytes, ApiError> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > MAX_BODY_BYTES) {
        return Err(ApiError::Protocol(ProtocolError::BodyTooLarge));
    }
    let too_late = |_| Err(ApiError::issue([""; 0], "the body was not received in time"));
    tokio::time::timeout(timeout, read_whole(body, share)).await.unwrap_or_else(too_late)
}

async fn read_whole(body: Body, mut share: Option<MemoryShare>) -> Result<Bytes, ApiError> {
    let (mut body, mut whole) = (Limited::new(body, MAX_BODY_BYTES), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.downcast::<LengthLimitError>() {
            Ok(_) => ApiError::Protocol(ProtocolError::BodyTooLarge),
            Err(_) => ApiError::issue([""; 0], "the body ended early"),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if let Some(share) = &mut share {
            share.grow_to(whole.len() + data.len())?;
        }
        whole.extend_from_slice(&data);
    }
    Ok(match share {
        Some(share) => share.kept_by(whole),
        None => whole.into(),
    })
}

/// The text of a whole JSON body; an empty one counts as `{}`.
pub(super) fn json_text<'a>(headers: &HeaderMap, bytes: &'a [u8]) -> Result<&'a str, ApiError> {
    if bytes.is_empty() {
        return Ok(EMPTY);
    }
    if !is_json(headers) {
        return Err(ApiError::Protocol(ProtocolError::ContentTypeUnsupported));
    }
    std::str::from_utf8(bytes).map_err(|_| ApiError::issue([""; 0], "must be UTF-8"))
}

/// `application/json` or `application/<anything>+json`, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The response of a successful call: a resource as JSON, never an empty body.
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

    /// 202: started.
    pub(super) fn accepted(resource: T) -> Self {
        Self { status: StatusCode::ACCEPTED, resource }
    }

    /// 201.
    pub(super) fn created(resource: T) -> Self {
        Self { status: StatusCode::CREATED, resource }
    }
}

impl<T: Serialize> From<Reply<T>> for StoredResponse {
    fn from(reply: Reply<T>) -> Self {
        match serde_json::to_vec(&reply.resource) {
            Ok(body) => {
                let json = HeaderValue::from_static("application/json");
                let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
                Self { status: reply.status, headers, body: body.into() }
            }
            Err(error) => ApiError::internal(format!("a resource cannot be written: {error}")).into(),
        }
    }
}

impl<T: Serialize> IntoResponse for Reply<T> {
    fn into_response(self) -> Response {
        StoredResponse::from(self).into_response()
    }
}

/// The response of a deletion (completion.md section 10). A deletion that fails is an error.
#[derive(Debug, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "the interface names the fields")]
pub(super) struct Deleted {
    /// Always true.
    success: bool,
    /// Always true.
    deleted: bool,
    /// The id of what was deleted.
    id: String,
}

impl Deleted {
    /// The response of the deletion of `id`.
    pub(super) fn id(id: impl Display) -> Self {
        Self { success: true, deleted: true, id: id.to_string() }
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

impl PartialSchema for ExactNumber {
    fn schema() -> RefOr<Schema> {
        Object::with_type(Type::Number).into()
    }
}

impl ToSchema for ExactNumber {}

/// An instant shown in ISO 8601 with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timestamp(pub(super) DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        let date_time = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        let text = Object::builder().schema_type(Type::String).format(Some(date_time));
        text.examples([json!("2026-01-01T00:00:00.000Z")]).into()
    }
}

impl ToSchema for Timestamp {}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::time::{Instant, sleep};

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

    /// A body that arrives in pieces, each after a pause, and never ends.
    fn endless(pause: Duration) -> Body {
        Body::from_stream(stream::unfold((), move |()| async move {
            sleep(pause).await;
            Some((Ok::<_, axum::Error>(Bytes::from_static(b" ")), ()))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_body_must_be_received_in_time() {
        const TIMEOUT: Duration = Duration::from_secs(30);
        for pause in [TIMEOUT * 2, TIMEOUT / 4] {
            let started = Instant::now();
            let refused = collect(TIMEOUT, &HeaderMap::new(), endless(pause), None).await.unwrap_err();
            assert_eq!((refused.code(), started.elapsed()), ("validation_error", TIMEOUT));
        }
        let body = Body::from("{}");
        assert_eq!(collect(TIMEOUT, &HeaderMap::new(), body, None).await.unwrap(), "{}");
    }

    #[tokio::test]
    async fn a_body_is_refused_above_its_bound_whether_or_not_it_announces_its_length() {
        let refused = |headers: HeaderMap, body: Body| async move {
            collect(Duration::MAX, &headers, body, None).await.map_err(|error| error.code())
        };
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(MAX_BODY_BYTES + 1))]);
        let pending = Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>());
        assert_eq!(refused(announced, pending).await, Err("body_too_large"));
        let long = Body::from(vec![b' '; MAX_BODY_BYTES + 1]);
        assert_eq!(refused(HeaderMap::new(), long).await, Err("body_too_large"));
        let longest = Body::from(vec![b' '; MAX_BODY_BYTES]);
        assert_eq!(refused(HeaderMap::new(), longest).await.unwrap().len(), MAX_BODY_BYTES);
    }
}
