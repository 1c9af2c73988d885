//! The request body to the provider: the part that was read ahead, then the rest as the caller sends it.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use farthing_egress::CallEnd;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper_util::client::legacy::connect::CaptureConnection;
use tokio::time::Sleep;

use super::pieces::Pieces;
use super::turns::Turn;
use super::usage::FormExtent;

/// The most bytes that are read ahead. The model and output limit of a longer JSON body stay unknown.
const MAX_AHEAD: usize = 256 * 1024;

/// Why a request body fails before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The caller's connection failed.
    #[error("the caller's body failed: {0}")]
    Aborted(#[from] axum::Error),
    /// The caller stays connected but sends nothing.
    #[error("the caller sent nothing for too long")]
    Timeout,
    /// The call has been over for some time.
    #[error("the call is over")]
    Over,
}

/// A request body, of which a part may be read ahead.
#[derive(Debug)]
pub(crate) struct RequestBody {
    ahead: Option<Bytes>,
    rest: Option<Arc<Mutex<Sending>>>,
    is_sent: SentFlag,
    end: Arc<CallEnd>,
    /// Of the call, until the body is read.
    connection: Option<CaptureConnection>,
}

/// Whether a request was sent: its body is read once a connection to the provider is there. An empty body is never read.
#[derive(Debug, Clone, Default)]
pub(super) struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    /// Whether it was sent.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl RequestBody {
    fn new(ahead: Option<Bytes>, rest: Option<Arc<Mutex<Sending>>>) -> Self {
        Self { ahead, rest, is_sent: SentFlag::default(), end: Arc::default(), connection: None }
    }

    /// It will be sent over this connection.
    pub(super) fn sent_over(&mut self, connection: CaptureConnection) {
        self.connection = Some(connection);
    }

    /// A body that is complete in memory.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::new(Some(bytes), None)
    }

    /// All bytes of the body, if they are in memory.
    pub(super) fn in_memory(&self) -> Option<Bytes> {
        match (&self.ahead, &self.rest) {
            (Some(ahead), None) => Some(ahead.clone()),
            (None, _) | (Some(_), Some(_)) => self.is_end_stream().then(Bytes::new),
        }
    }

    /// What is left of it when the call is over. That the provider has answered does not mean that it has read it.
    pub(super) fn unsent(&self) -> Unsent {
        Unsent { rest: self.rest.clone(), end: Arc::clone(&self.end) }
    }

    /// The flag that is set once the request is sent.
    pub(super) fn sent_flag(&self) -> SentFlag {
        self.is_sent.clone()
    }
}

/// How long the rest of a request is sent after its call is over. A caller that writes all before it reads the response
/// would lose that otherwise.
const SEND_ON: Duration = Duration::from_secs(30);

/// The part of a body that is not sent yet; nothing once it will not be.
#[derive(Debug)]
struct Sending {
    rest: Option<Rest>,
    /// When its end comes at the latest, once the call is over.
    until: Option<Pin<Box<Sleep>>>,
    /// Of the connection to the provider.
    waker: Option<Waker>,
}

impl Sending {
    fn new(rest: Rest) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { rest: Some(rest), until: None, waker: None }))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(Some(Err(BodyError::Over))) };
        if let Some(until) = &mut self.until
            && until.as_mut().poll(cx).is_ready()
        {
            self.rest = None;
            return Poll::Ready(Some(Err(BodyError::Over)));
        }
        let frame = rest.poll_frame(cx);
        self.waker = frame.is_pending().then(|| cx.waker().clone());
        frame
    }
}

fn locked(sending: &Mutex<Sending>) -> MutexGuard<'_, Sending> {
    sending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is left of a body when it is dropped is sent for [`SEND_ON`] at the most, and the provider has little time to read.
#[derive(Debug)]
pub(super) struct Unsent {
    rest: Option<Arc<Mutex<Sending>>>,
    end: Arc<CallEnd>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.end.now();
        let Some(sending) = &self.rest else { return };
        let waker = {
            let mut sending = locked(sending);
            // Without a runtime the process ends, and nothing more is sent.
            if sending.rest.is_none() || tokio::runtime::Handle::try_current().is_err() {
                return;
            }
            sending.until = Some(Box::pin(tokio::time::sleep(SEND_ON)));
            sending.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for RequestBody {
    /// Its rest ends with it, and the turn in which it waits.
    fn drop(&mut self) {
        let rest = self.rest.as_ref().and_then(|sending| locked(sending).rest.take());
        drop(rest);
    }
}

/// The part of a body that the caller has not sent yet.
#[derive(Debug)]
struct Rest {
    body: Pieces<Body>,
    /// How long the caller may send nothing.
    idle_timeout: Duration,
    /// Runs while the provider waits for the caller.
    idle: Option<Pin<Box<Sleep>>>,
}

impl Rest {
    fn new(body: Pieces<Body>, idle_timeout: Duration) -> Self {
        Self { body, idle_timeout, idle: None }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        ready!(self.body.poll_pause(cx));
        if let Poll::Ready(frame) = self.body.poll_piece(cx) {
            self.idle = None;
            return Poll::Ready(frame.map(|frame| Ok(frame?)));
        }
        let idle_timeout = self.idle_timeout;
        let idle = self.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle_timeout)));
        ready!(idle.as_mut().poll(cx));
        Poll::Ready(Some(Err(BodyError::Timeout)))
    }
}

/// Which bodies are read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// JSON up to [`MAX_AHEAD`], for its model and output limit.
    Json,
    /// The same, and the first [`MAX_AHEAD`] bytes of a form, for its model.
    JsonOrForm,
    /// The first [`MAX_AHEAD`] bytes of any body, to compare it with other uses of the same idempotency key.
    Any,
}

/// The known part of a body, which identifies it under an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BodyFingerprint {
    /// The first 256 KiB at most.
    pub(crate) first: Bytes,
    /// The length of the whole body, if known.
    pub(crate) length: Option<u64>,
    /// Whether `first` is the whole body.
    pub(crate) complete: bool,
}

impl BodyFingerprint {
    /// That of a body that was read whole.
    pub(crate) fn of_whole(whole: &Bytes) -> Self {
        let is_short = whole.len() <= MAX_AHEAD;
        // A part of a long body would keep all of it.
        let first = if is_short { whole.clone() } else { Bytes::copy_from_slice(&whole[..MAX_AHEAD]) };
        Self { first, length: Some(whole.len() as u64), complete: is_short }
    }
}

/// A body after reading ahead.
pub(crate) struct ReadAhead {
    /// The body to send to the provider.
    pub(crate) body: RequestBody,
    /// The whole body, if it is JSON and at most [`MAX_AHEAD`] bytes long.
    pub(crate) json: Option<Bytes>,
    /// The form, or its first [`MAX_AHEAD`] bytes, if the body is one.
    pub(crate) form: Option<(Bytes, FormExtent)>,
    /// The length of the body, as far as it is known, in bytes.
    pub(crate) known_bytes: u64,
    /// The fingerprint, with [`Ahead::Any`].
    pub(crate) fingerprint: Option<BodyFingerprint>,
}

/// Reads ahead as `ahead` says, in `turn` with the other bodies of the merchant. The rest streams; it fails if the caller sends nothing for `idle_timeout`.
pub(crate) async fn read_ahead(
    headers: &HeaderMap,
    body: Body,
    ahead: Ahead,
    turn: Turn,
    idle_timeout: Duration,
) -> Result<ReadAhead, axum::Error> {
    let announced = body.size_hint().exact();
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.map(str::to_ascii_lowercase).unwrap_or_default();
    let is_json = content_type.contains("json");
    let is_form = content_type.starts_with("multipart/form-data");
    let too_long = announced.is_some_and(|bytes| bytes > MAX_AHEAD as u64);
    let wanted = match ahead {
        Ahead::Any => true,
        Ahead::Json => is_json && !too_long,
        Ahead::JsonOrForm => is_form || (is_json && !too_long),
    };
    if !wanted || announced == Some(0) {
        let known_bytes = announced.unwrap_or(0);
        let nothing = BodyFingerprint { first: Bytes::new(), length: Some(0), complete: true };
        let fingerprint = (ahead == Ahead::Any).then_some(nothing);
        let rest = Some(Sending::new(Rest::new(Pieces::new(body, turn), idle_timeout)));
        let body = RequestBody::new(None, rest);
        return Ok(ReadAhead { body, json: None, form: None, known_bytes, fingerprint });
    }
    let (first, rest) = read_first(Pieces::new(body, turn)).await?;
    let whole = rest.is_none();
    let known_bytes = if whole { first.len() as u64 } else { announced.unwrap_or(first.len() as u64) };
    let fingerprint = (ahead == Ahead::Any).then(|| BodyFingerprint {
        first: first.slice(..first.len().min(MAX_AHEAD)),
        length: if whole { Some(known_bytes) } else { announced },
        complete: whole && first.len() <= MAX_AHEAD,
    });
    let json = (is_json && whole).then(|| first.clone());
    let extent = if whole && first.len() <= MAX_AHEAD { FormExtent::Whole } else { FormExtent::Beginning };
    let form = is_form.then(|| (first.slice(..first.len().min(MAX_AHEAD)), extent));
    let rest = rest.map(|rest| Sending::new(Rest::new(rest, idle_timeout)));
    let body = RequestBody::new(Some(first), rest);
    Ok(ReadAhead { body, json, form, known_bytes, fingerprint })
}

/// The first bytes of `body`, and its rest if it is longer than [`MAX_AHEAD`].
async fn read_first(mut body: Pieces<Body>) -> Result<(Bytes, Option<Pieces<Body>>), axum::Error> {
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    while first.len() + more.len() <= MAX_AHEAD {
        poll_fn(|cx| body.poll_pause(cx)).await;
        let Some(frame) = poll_fn(|cx| body.poll_piece(cx)).await.transpose()? else {
            return Ok((if more.is_empty() { first } else { more.freeze() }, None));
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.is_empty() && more.is_empty() {
            first = data; // most bodies arrive in one frame, which is not copied
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
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        this.is_sent.0.store(true, Ordering::Relaxed);
        if let Some(connection) = this.connection.take()
            && let Some(connection) = connection.connection_metadata().as_ref()
        {
            this.end.carried_by(connection);
        }
        if let Some(ahead) = this.ahead.take().filter(|ahead| !ahead.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let Some(sending) = &this.rest else { return Poll::Ready(None) };
        locked(sending).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.as_ref().is_none_or(Bytes::is_empty)
            && self.rest.as_ref().is_none_or(|sending| {
                locked(sending).rest.as_ref().is_some_and(|rest| rest.body.is_end_stream())
            })
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.as_ref().map_or(0, |ahead| ahead.len() as u64);
        let rest = self.rest.as_ref().map_or_else(
            || SizeHint::with_exact(0),
            |sending| locked(sending).rest.as_ref().map_or_else(SizeHint::new, |rest| rest.body.size_hint()),
        );
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ahead));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(ahead)) {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http::HeaderValue;
    use http_body_util::BodyExt as _;
    use tokio::time::{Instant, sleep};

    use super::super::turns::{Turn, Turns};
    use super::*;

    fn turn() -> Turn {
        Turns::default().body_of(farthing_core::ids::MerchantId::new(ulid::Ulid::nil()))
    }

    const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

    /// A body whose pieces arrive one after the other, each this long after the body is read again. It never ends.
    fn arriving(pauses: &'static [Duration]) -> Body {
        let pieces = stream::unfold(pauses.iter(), |mut pauses| async {
            let Some(pause) = pauses.next() else { return std::future::pending().await };
            sleep(*pause).await;
            Some((Ok::<_, axum::Error>(Bytes::from_static(b"{")), pauses))
        });
        Body::from_stream(pieces)
    }

    async fn unread(body: Body) -> RequestBody {
        let read = read_ahead(&HeaderMap::new(), body, Ahead::Json, turn(), IDLE_TIMEOUT).await.unwrap();
        assert!(read.json.is_none() && read.fingerprint.is_none());
        read.body
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_fails_once_the_caller_sends_nothing_for_the_idle_timeout() {
        const PAUSES: [Duration; 3] = [Duration::from_secs(29); 3];
        let mut body = unread(arriving(&PAUSES)).await;
        let started = Instant::now();
        for _ in PAUSES {
            assert!(body.frame().await.unwrap().is_ok(), "each piece starts the timeout again");
        }
        assert!(matches!(body.frame().await, Some(Err(BodyError::Timeout))));
        assert_eq!(started.elapsed(), PAUSES.iter().sum::<Duration>() + IDLE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_reads_slowly_does_not_make_the_caller_idle() {
        const PAUSES: [Duration; 2] = [Duration::from_secs(1); 2];
        let mut body = unread(arriving(&PAUSES)).await;
        for _ in PAUSES {
            sleep(IDLE_TIMEOUT * 2).await;
            assert!(body.frame().await.unwrap().is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_sent_for_a_while_once_its_call_is_over() {
        const PAUSES: [Duration; 6] = [Duration::from_secs(8); 6];
        let mut body = unread(arriving(&PAUSES)).await;
        let unsent = body.unsent();
        assert!(body.frame().await.unwrap().is_ok());
        let started = Instant::now();
        drop(unsent);
        for _ in 0..3 {
            assert!(body.frame().await.unwrap().is_ok());
        }
        assert!(matches!(body.frame().await, Some(Err(BodyError::Over))));
        assert_eq!(started.elapsed(), SEND_ON);
        assert!(matches!(body.frame().await, Some(Err(BodyError::Over))));
        assert!(!body.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_waits_for_its_caller_learns_that_its_call_is_over() {
        let mut body = unread(arriving(&[])).await;
        let unsent = body.unsent();
        let sending = tokio::spawn(async move { body.frame().await });
        sleep(IDLE_TIMEOUT / 2).await;
        let started = Instant::now();
        drop(unsent);
        let ended = sending.await.unwrap();
        assert!(matches!(ended, Some(Err(BodyError::Timeout))), "{ended:?}");
        assert_eq!(started.elapsed(), IDLE_TIMEOUT / 2, "what comes first ends it");
    }

    #[tokio::test]
    async fn json_is_read_ahead_up_to_its_bound_and_sent_unchanged() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (length, is_known) in [(1, true), (MAX_AHEAD, true), (MAX_AHEAD + 1, false)] {
            for announced in [true, false] {
                let bytes = Bytes::from(vec![b'1'; length]);
                let pieces: Vec<_> = bytes.chunks(100_000).map(Bytes::copy_from_slice).collect();
                let pieces = stream::iter(pieces.into_iter().map(Ok::<_, axum::Error>));
                let body = if announced { Body::from(bytes.clone()) } else { Body::from_stream(pieces) };
                let read = read_ahead(&headers, body, Ahead::Json, turn(), IDLE_TIMEOUT).await.unwrap();
                assert_eq!(read.json, is_known.then(|| bytes.clone()), "{length} bytes");
                assert_eq!(read.body.collect().await.unwrap().to_bytes(), bytes, "{length} bytes");
            }
        }
    }
}
