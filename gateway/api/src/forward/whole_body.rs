//! Reads a request body whole, for the endpoints at which it decides where the call goes and may be converted.

use std::future::poll_fn;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::Body as _;

use super::pieces::Pieces;
use super::turns::Turn;
use crate::body_memory::MemoryShare;
use crate::error::{ApiError, ProtocolError};

/// The longest body, in bytes. Images travel in it; no provider takes longer requests of this kind.
pub(super) const MAX_WHOLE_BODY: usize = 32 * 1024 * 1024;

/// The most time for a body that keeps coming.
const READING_TIMEOUT: Duration = Duration::from_mins(2);

/// Reads the JSON body whole, in `turn` with the other bodies of the merchant. It fails if the caller sends nothing for
/// `idle_timeout`, if it is too long, or if there is no memory for it in `share`.
pub(super) async fn read_whole(
    headers: &HeaderMap,
    body: Body,
    turn: Turn,
    idle_timeout: Duration,
    share: MemoryShare,
) -> Result<Bytes, ApiError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.to_ascii_lowercase().contains("json") {
        return Err(ApiError::Protocol(ProtocolError::ContentTypeUnsupported));
    }
    if body.size_hint().lower() > MAX_WHOLE_BODY as u64 {
        return Err(ApiError::Protocol(ProtocolError::BodyTooLarge));
    }
    let reading = read_pieces(Pieces::new(body, turn), idle_timeout, share);
    tokio::time::timeout(READING_TIMEOUT, reading).await.unwrap_or_else(|_| Err(too_late()))
}

async fn read_pieces(
    mut body: Pieces<Body>,
    idle_timeout: Duration,
    mut share: MemoryShare,
) -> Result<Bytes, ApiError> {
    let mut whole = Vec::new();
    loop {
        poll_fn(|cx| body.poll_pause(cx)).await;
        let piece = tokio::time::timeout(idle_timeout, poll_fn(|cx| body.poll_piece(cx))).await;
        let Some(frame) = piece.map_err(|_| too_late())? else { return Ok(share.kept_by(whole)) };
        let frame = frame.map_err(|error| ApiError::issue(["body"], format!("cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = whole.len() + data.len();
        if length > MAX_WHOLE_BODY {
            return Err(ApiError::Protocol(ProtocolError::BodyTooLarge));
        }
        share.grow_to(length)?;
        whole.extend_from_slice(&data);
    }
}

fn too_late() -> ApiError {
    ApiError::issue(["body"], "did not come in time")
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http::HeaderValue;

    use super::super::turns::{Turns, tests::merchant};
    use super::*;
    use crate::body_memory::{BodyKind, BodyMemory};

    async fn read(content_type: &'static str, body: Body) -> Result<Bytes, ApiError> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        let turn = Turns::default().body_of(merchant(1));
        let share = BodyMemory::default().share(merchant(1), BodyKind::Request);
        read_whole(&headers, body, turn, Duration::from_secs(30), share).await
    }

    fn in_pieces(length: usize) -> Body {
        let pieces = std::iter::repeat_n(100_000, length / 100_000).chain([length % 100_000]);
        let pieces = pieces.map(|length| Ok::<_, axum::Error>(Bytes::from(vec![b'1'; length])));
        Body::from_stream(stream::iter(pieces.collect::<Vec<_>>()))
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_bound() {
        for length in [0, 1, 300_000, MAX_WHOLE_BODY] {
            let whole = read("application/json; charset=utf-8", in_pieces(length)).await.unwrap();
            assert_eq!(whole.len(), length);
        }
        let too_long = Err(ApiError::Protocol(ProtocolError::BodyTooLarge));
        assert_eq!(read("application/json", in_pieces(MAX_WHOLE_BODY + 1)).await, too_long);
        assert_eq!(read("application/json", Body::from(vec![0; MAX_WHOLE_BODY + 1])).await, too_long);
        let wrong = Err(ApiError::Protocol(ProtocolError::ContentTypeUnsupported));
        assert_eq!(read("text/plain", in_pieces(1)).await, wrong);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_sends_nothing_or_too_slowly_is_not_waited_for() {
        let silent = Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>());
        assert_eq!(read("application/json", silent).await, Err(too_late()));
        let slow = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(29)).await;
            Some((Ok::<_, axum::Error>(Bytes::from_static(b"1")), ()))
        });
        let started = tokio::time::Instant::now();
        assert_eq!(read("application/json", Body::from_stream(slow)).await, Err(too_late()));
        assert_eq!(started.elapsed(), READING_TIMEOUT);
    }
}
