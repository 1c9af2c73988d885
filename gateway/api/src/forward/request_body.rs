//! The body on its way to the provider: what has been read ahead of it, then the rest as it comes, as long as it
//! comes.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::Sleep;

/// How much of a JSON body is read ahead, in bytes: beyond it, what the body asks for stays unknown.
const MAX_AHEAD: usize = 256 * 1024;

/// Why a body does not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsent {
    /// The caller broke off.
    #[error("the caller broke off: {0}")]
    BrokenOff(#[from] axum::Error),
    /// The caller is there and says nothing.
    #[error("the caller was silent for too long")]
    Silent,
}

/// A request body, perhaps read ahead.
#[derive(Debug)]
pub(crate) struct RequestBody {
    ahead: Option<Bytes>,
    rest: Option<Rest>,
}

impl RequestBody {
    /// A body that is there whole.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { ahead: Some(bytes), rest: None }
    }
}

/// What of a body is still to come from the caller.
#[derive(Debug)]
struct Rest {
    body: Body,
    /// How long the caller may be silent.
    patience: Duration,
    /// Runs while the provider waits for the caller.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Rest {
    fn new(body: Body, patience: Duration) -> Self {
        Self { body, patience, silence: None }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Unsent>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.silence = None;
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        let patience = self.patience;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(silence.as_mut().poll(cx));
        Poll::Ready(Some(Err(Unsent::Silent)))
    }
}

/// Which bodies are read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// JSON that is short enough, for the model and the output limit it names.
    Json,
    /// The beginning of any body: it tells the call apart from others under the same idempotency key.
    Anything,
}

/// What tells a body apart from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// The first 256 KiB at most.
    pub(crate) first: Bytes,
    /// The length of the whole, where it is known.
    pub(crate) length: Option<u64>,
    /// Are the first bytes all of it?
    pub(crate) whole: bool,
}

/// A body, and what of it was read ahead.
pub(crate) struct ReadAhead {
    /// To be sent on.
    pub(crate) body: RequestBody,
    /// The whole body, where it is JSON and short enough.
    pub(crate) whole: Option<Bytes>,
    /// Bytes of the body, as far as they are known.
    pub(crate) known_bytes: u64,
    /// What is known of it, where anything is read ahead.
    pub(crate) known: Option<Known>,
}

/// Reads ahead what `ahead` says; everything else is left to stream, by a caller who is never silent for longer than
/// `patience`.
pub(crate) async fn read_ahead(
    headers: &HeaderMap,
    body: Body,
    ahead: Ahead,
    patience: Duration,
) -> Result<ReadAhead, axum::Error> {
    let announced = body.size_hint().exact();
    let is_json = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.to_ascii_lowercase().contains("json"));
    let too_long = announced.is_some_and(|bytes| bytes > MAX_AHEAD as u64);
    let wanted = ahead == Ahead::Anything || (is_json && !too_long);
    if !wanted || announced == Some(0) {
        let known_bytes = announced.unwrap_or(0);
        let nothing = Known { first: Bytes::new(), length: Some(0), whole: true };
        let known = (ahead == Ahead::Anything).then_some(nothing);
        let body = RequestBody { ahead: None, rest: Some(Rest::new(body, patience)) };
        return Ok(ReadAhead { body, whole: None, known_bytes, known });
    }
    let (first, rest) = read_first(body).await?;
    let whole = rest.is_none();
    let known_bytes = if whole { first.len() as u64 } else { announced.unwrap_or(first.len() as u64) };
    let known = (ahead == Ahead::Anything).then(|| Known {
        first: first.slice(..first.len().min(MAX_AHEAD)),
        length: if whole { Some(known_bytes) } else { announced },
        whole: whole && first.len() <= MAX_AHEAD,
    });
    let json = (is_json && whole).then(|| first.clone());
    let rest = rest.map(|rest| Rest::new(rest, patience));
    Ok(ReadAhead { body: RequestBody { ahead: Some(first), rest }, whole: json, known_bytes, known })
}

/// The first bytes of `body`, and the rest of it where there is more than is read ahead.
async fn read_first(mut body: Body) -> Result<(Bytes, Option<Body>), axum::Error> {
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    while first.len() + more.len() <= MAX_AHEAD {
        let Some(frame) = body.frame().await.transpose()? else {
            return Ok((if more.is_empty() { first } else { more.freeze() }, None));
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
    Ok((if more.is_empty() { first } else { more.freeze() }, Some(body)))
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Unsent;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Unsent>>> {
        let this = self.get_mut();
        if let Some(ahead) = this.ahead.take().filter(|ahead| !ahead.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        rest.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.as_ref().is_none_or(Bytes::is_empty)
            && self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.as_ref().map_or(0, |ahead| ahead.len() as u64);
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ahead));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(ahead)) {
            hint.set_upper(upper);
        }
        hint
    }
}
