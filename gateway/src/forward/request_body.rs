//! The body on its way to the provider: what has been read ahead of it, then the rest as it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;

/// How much of a JSON body is read ahead, in bytes: beyond it, what the body asks for stays unknown.
const MAX_AHEAD: usize = 256 * 1024;

/// A request body, perhaps read ahead.
#[derive(Debug)]
pub(crate) struct RequestBody {
    ahead: Option<Bytes>,
    rest: Option<Body>,
}

/// A body, and what of it was read ahead.
pub(crate) struct ReadAhead {
    /// To be sent on.
    pub(crate) body: RequestBody,
    /// The whole body, where it is JSON and short enough.
    pub(crate) whole: Option<Bytes>,
    /// Bytes of the body, as far as they are known.
    pub(crate) known_bytes: u64,
}

/// Reads ahead what is JSON; everything else is left to stream.
pub(crate) async fn read_ahead(headers: &HeaderMap, mut body: Body) -> Result<ReadAhead, axum::Error> {
    let announced = body.size_hint().exact();
    let is_json = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.to_ascii_lowercase().contains("json"));
    let too_long = announced.is_some_and(|bytes| bytes > MAX_AHEAD as u64);
    if !is_json || too_long || announced == Some(0) {
        let known_bytes = announced.unwrap_or(0);
        return Ok(ReadAhead {
            body: RequestBody { ahead: None, rest: Some(body) },
            whole: None,
            known_bytes,
        });
    }
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    while first.len() + more.len() <= MAX_AHEAD {
        let Some(frame) = body.frame().await.transpose()? else {
            let whole = if more.is_empty() { first } else { more.freeze() };
            let known_bytes = whole.len() as u64;
            let body = RequestBody { ahead: Some(whole.clone()), rest: None };
            return Ok(ReadAhead { body, whole: Some(whole), known_bytes });
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.is_empty() && more.is_empty() {
            first = data; // most bodies come in one piece, which then is not copied
        } else {
            if more.is_empty() {
                more.extend_from_slice(&std::mem::take(&mut first));
            }
            more.extend_from_slice(&data);
        }
    }
    let ahead = if more.is_empty() { first } else { more.freeze() };
    let known_bytes = announced.unwrap_or(ahead.len() as u64);
    Ok(ReadAhead { body: RequestBody { ahead: Some(ahead), rest: Some(body) }, whole: None, known_bytes })
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if let Some(ahead) = this.ahead.take().filter(|ahead| !ahead.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(rest).poll_frame(cx));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.as_ref().is_none_or(Bytes::is_empty)
            && self.rest.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.as_ref().map_or(0, |ahead| ahead.len() as u64);
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ahead));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(ahead)) {
            hint.set_upper(upper);
        }
        hint
    }
}
