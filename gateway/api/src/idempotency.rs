//! `Idempotency-Key` (completion.md section 1): the header, and the responses stored for it. Invariant: a response is
//! replayed byte for byte, and is sealed before it is written to the database. What framed it once is neither stored nor
//! replayed: each replay is framed by the stored body.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use farthing_core::idempotency::{ClaimId, ClaimStatus, SealedAnswer};
use farthing_core::secret::ServerKey;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, IdempotencyError};
use crate::headers::{SERVICE_REQUEST_ID, is_framing};

/// The header of the caller's idempotency key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Marks a replayed response.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The longest key, in characters.
const MAX_KEY: usize = 255;

/// The key of a call, if it has one: 1 to 255 ASCII characters, given once.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = |message| Err(ApiError::issue(["Idempotency-Key"], message));
    if values.next().is_some() {
        return wrong("must be given once");
    }
    let Ok(key) = value.to_str() else { return wrong("must consist of visible ASCII characters") };
    match key.len() {
        1..=MAX_KEY => Ok(Some(key)),
        _ => wrong("must have 1 to 255 characters"),
    }
}

/// A whole response, which may be stored and replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The first line of a stored response, before its body. Each character of a header value is one byte.
#[derive(Serialize, Deserialize)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl StoredResponse {
    /// The response for storage, sealed for `claim`.
    pub(crate) fn seal(&self, server_key: &ServerKey, claim: &ClaimId) -> SealedAnswer {
        server_key.seal(claim, &self.to_bytes())
    }

    /// Opens a response that [`Self::seal`] sealed for the same claim.
    pub(crate) fn open(server_key: &ServerKey, claim: &ClaimId, sealed: &[u8]) -> Result<Self, ApiError> {
        let answer = server_key.open(claim, sealed).and_then(|bytes| Self::from_bytes(&bytes.into()));
        answer.ok_or_else(|| ApiError::internal("a stored response cannot be opened"))
    }

    /// The same response, marked as replayed.
    pub(crate) fn repeated(mut self) -> Self {
        self.headers.insert(REPLAYED, HeaderValue::from_static("true"));
        self
    }

    /// The same response, marked as replayed if `other` is.
    pub(crate) fn given_like(self, other: &Self) -> Self {
        if other.headers.contains_key(REPLAYED) { self.repeated() } else { self }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let shown = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
        let headers = self.headers.iter().filter(|(name, _)| !is_framing(name));
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), shown(value)));
        let head = Head { status: self.status.as_u16(), headers: headers.collect() };
        let mut bytes = serde_json::to_vec(&head).expect("a head is text and numbers");
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.body);
        bytes
    }

    fn from_bytes(bytes: &Bytes) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
        let mut headers = HeaderMap::with_capacity(head.headers.len());
        for (name, value) in head.headers {
            let value: Vec<u8> = value.chars().map(u8::try_from).collect::<Result<_, _>>().ok()?;
            let (name, value) = (HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
            // Responses that earlier releases stored have such headers, and a provider may have chosen them.
            if !is_framing(&name) {
                headers.append(name, value);
            }
        }
        Some(Self { status: StatusCode::from_u16(head.status).ok()?, headers, body: bytes.slice(end + 1..) })
    }
}

impl IntoResponse for StoredResponse {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

impl From<ApiError> for StoredResponse {
    fn from(error: ApiError) -> Self {
        let (status, headers, body) = error.into_parts();
        Self { status, headers, body: body.into() }
    }
}

/// The answer to a call whose key was used before.
pub(crate) fn response_to(
    standing: ClaimStatus,
    server_key: &ServerKey,
    claim: &ClaimId,
) -> Result<StoredResponse, ApiError> {
    match standing {
        ClaimStatus::Reused => Err(ApiError::Idempotency(IdempotencyError::KeyReused)),
        ClaimStatus::InFlight(request_id) => {
            Err(ApiError::Idempotency(IdempotencyError::InProgress(request_id)))
        }
        ClaimStatus::Ended(request_id) => Err(ApiError::Idempotency(IdempotencyError::Completed(request_id))),
        ClaimStatus::Answered(sealed, request_id) => {
            let mut answer = StoredResponse::open(server_key, claim, &sealed)?.repeated();
            if let Some(request_id) = request_id {
                let value = HeaderValue::try_from(request_id.to_string()).expect("an id is ASCII");
                answer.headers.insert(SERVICE_REQUEST_ID, value);
            }
            Ok(answer)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;

    use super::*;
    use crate::error::InputError;

    fn with(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_key_has_1_to_255_ascii_characters_and_is_given_once() {
        assert_eq!(key(&with(&[])), Ok(None));
        assert_eq!(key(&with(&[b"a b-1"])), Ok(Some("a b-1")));
        let longest = [b'x'; 255];
        assert_eq!(key(&with(&[&longest])).unwrap().map(str::len), Some(255));
        let too_long = [b'x'; 256];
        for bad in [&[&b""[..]][..], &[&too_long[..]], &["é".as_bytes()], &[b"\xff"], &[b"a", b"a"]] {
            let Err(ApiError::Input(InputError::Validation(issues))) = key(&with(bad)) else {
                panic!("{bad:?}")
            };
            assert_eq!(issues[0].path, ["Idempotency-Key"]);
        }
    }

    #[test]
    fn a_stored_response_is_replayed_byte_for_byte() {
        let mut headers = HeaderMap::new();
        headers.append("set-cookie", HeaderValue::from_static("a=1"));
        headers.append("set-cookie", HeaderValue::from_static("b=2"));
        headers.insert("x-odd", HeaderValue::from_bytes(b"caf\xe9 \t\"x\"").unwrap());
        let body = Bytes::from_static(b"{\n\"a\":\xff}\n\n");
        let answer = StoredResponse { status: StatusCode::IM_A_TEAPOT, headers, body };
        assert_eq!(StoredResponse::from_bytes(&answer.to_bytes().into()), Some(answer.clone()));
        let empty = StoredResponse { body: Bytes::new(), ..answer };
        assert_eq!(StoredResponse::from_bytes(&empty.to_bytes().into()), Some(empty));
    }

    #[test]
    fn what_framed_a_response_is_neither_stored_nor_replayed() {
        let framing = [
            ("connection", "close, x-hop"),
            ("content-length", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x-last"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
        ];
        let body = Bytes::from_static(b"{\"a\":1}");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let expected = StoredResponse { status: StatusCode::OK, headers, body };
        let mut given = expected.clone();
        for (name, value) in framing {
            given.headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(given.to_bytes(), expected.to_bytes());

        // As an earlier release stored it.
        let headers = [&[("content-type", "application/json")][..], &framing[..]].concat();
        let head = serde_json::json!({"status": 200, "headers": headers});
        let old = format!("{head}\n{{\"a\":1}}");
        assert_eq!(StoredResponse::from_bytes(&old.into()), Some(expected));
    }
}
