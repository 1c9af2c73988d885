//! The answer on its way to the caller: every byte as it comes, unchanged (but for what `filter` takes out), the end only when the call is
//! settled. Fires exactly once, whether the answer is completed, breaks off, or nobody wants it any more.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::keyed::Keeper;
use super::settlement::{End, Unsettled, settle, until_durable};
use super::usage::{ChunkFilter, Scanner};
use super::{CallId, DRAIN_TIMEOUT, Forwarder};

/// Why an answer breaks off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenOff {
    #[error("the provider broke off: {0}")]
    Provider(#[from] hyper::Error),
    #[error("the provider was silent for too long")]
    Idle,
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// By its announced length, or by its last chunk.
    WebhookNotice,
    /// Only by the closing of the connection, which may as well be a break.
    ByClosing,
}

/// The provider's side of an answer.
pub(super) struct Answer {
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) id: CallId,
    pub(super) status: StatusCode,
    pub(super) upstream: Incoming,
    pub(super) scanner: Scanner,
    /// Takes out what the caller did not ask for, where the gateway asked in its place.
    pub(super) filter: Option<ChunkFilter>,
    /// Collects the answer, where it may be asked for again.
    pub(super) keeper: Option<Keeper>,
    /// Bytes to come, where the provider announced them.
    pub(super) left: Option<u64>,
    pub(super) body_end: BodyEnd,
}

impl Answer {
    /// Starts the settlement, which goes on whoever waits for it.
    fn settle(&self, end: End) -> JoinHandle<Result<(), Unsettled>> {
        let settled = settle(self.status, self.scanner.report(), end);
        let forwarder = &self.forwarder;
        let keeper = self.keeper.as_ref().filter(|_| end == End::Whole);
        let closing = keeper.and_then(|keeper| keeper.kept(&forwarder.app.server_key));
        let app = Arc::clone(&forwarder.app);
        forwarder.tasks.spawn(until_durable(
            app,
            self.id.request_id,
            settled,
            closing,
            forwarder.abort.clone(),
        ))
    }

    /// What it means that no frame follows.
    fn ended(&self) -> End {
        match self.body_end {
            BodyEnd::ByClosing if self.scanner.is_within_document() => End::BrokenOff,
            BodyEnd::ByClosing | BodyEnd::WebhookNotice => End::Whole,
        }
    }

    /// What the caller sees of a frame; of the one that completes the answer, with what was held back before.
    fn shown(&mut self, frame: Frame<Bytes>, completes: bool) -> Option<Frame<Bytes>> {
        let Some(filter) = &mut self.filter else { return Some(frame) };
        let Some(data) = frame.data_ref() else { return self.held().or(Some(frame)) };
        let mut shown = BytesMut::from(filter.pass(data));
        if completes {
            shown.extend_from_slice(&filter.end());
        }
        (!shown.is_empty()).then(|| Frame::data(shown.freeze()))
    }

    /// What was held back, where nothing more follows.
    fn held(&mut self) -> Option<Frame<Bytes>> {
        let held = self.filter.as_mut()?.end();
        (!held.is_empty()).then(|| Frame::data(held))
    }

    /// Takes note of a frame; does it complete the answer?
    fn note(&mut self, frame: &Frame<Bytes>) -> bool {
        if let Some(keeper) = &mut self.keeper {
            keeper.note(frame);
        }
        let Some(data) = frame.data_ref() else { return true };
        if self.status.is_success() {
            self.scanner.feed(data);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(data.len() as u64);
        }
        self.left == Some(0)
    }
}

enum State {
    /// Frames pass.
    Streaming(Box<Answer>),
    /// The end waits for the settlement: the last frame, or the error that broke the answer off.
    Settling(JoinHandle<Result<(), Unsettled>>, Option<Result<Frame<Bytes>, BrokenOff>>),
    /// All has been said.
    Done,
}

/// An answer that settles its call before it ends.
pub(crate) struct MeteredBody {
    state: State,
    /// How long the provider may be silent.
    patience: Duration,
    heard_at: Instant,
    idle: Pin<Box<Sleep>>,
}

impl MeteredBody {
    pub(super) fn new(answer: Answer) -> Self {
        let (now, patience) = (Instant::now(), answer.forwarder.app.timeouts.silence);
        Self {
            state: State::Streaming(Box::new(answer)),
            patience,
            heard_at: now,
            idle: Box::pin(tokio::time::sleep_until(now + patience)),
        }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.idle.as_mut().poll(cx).is_ready() {
            let due = self.heard_at + self.patience;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.idle.as_mut().reset(due);
        }
        Poll::Pending
    }

    fn poll_streaming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let (end, last) = loop {
            let State::Streaming(answer) = &mut self.state else { return Poll::Ready(None) };
            match Pin::new(&mut answer.upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.heard_at = Instant::now();
                    let completes = answer.note(&frame);
                    let shown = answer.shown(frame, completes);
                    if completes {
                        break (End::Whole, shown.map(Ok));
                    }
                    if let Some(frame) = shown {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                Poll::Ready(None) => break (answer.ended(), answer.held().map(Ok)),
                Poll::Ready(Some(Err(error))) => break (End::BrokenOff, Some(Err(error.into()))),
                Poll::Pending => {
                    ready!(self.poll_idle(cx));
                    break (End::BrokenOff, Some(Err(BrokenOff::Idle)));
                }
            }
        };
        if let State::Streaming(answer) = &mut self.state {
            // What came before a break passes before it.
            let held = if matches!(last, Some(Err(_))) { answer.held() } else { None };
            self.state = State::Settling(answer.settle(end), last);
            if let Some(held) = held {
                return Poll::Ready(Some(Ok(held)));
            }
        }
        self.poll_settling(cx)
    }

    fn poll_settling(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let State::Settling(settlement, last) = &mut self.state else { return Poll::Ready(None) };
        let settled = ready!(Pin::new(settlement).poll(cx));
        let last = last.take();
        self.state = State::Done;
        match settled {
            Ok(Ok(())) => Poll::Ready(last),
            Ok(Err(unsettled)) => Poll::Ready(Some(Err(unsettled.into()))),
            Err(_) => Poll::Ready(Some(Err(Unsettled::Stopping.into()))),
        }
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = self.get_mut();
        match &this.state {
            State::Streaming(_) => this.poll_streaming(cx),
            State::Settling(..) => this.poll_settling(cx),
            State::Done => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Streaming(answer) if answer.filter.is_some() => SizeHint::default(),
            State::Streaming(answer) => answer.upstream.size_hint(),
            State::Settling(_, Some(Ok(frame))) => {
                SizeHint::with_exact(frame.data_ref().map_or(0, |data| data.len() as u64))
            }
            State::Settling(..) => SizeHint::default(),
            State::Done => SizeHint::with_exact(0),
        }
    }
}

impl Drop for MeteredBody {
    /// The caller has gone: the provider is read on to its final usage, which is charged.
    fn drop(&mut self) {
        if let State::Streaming(answer) = std::mem::replace(&mut self.state, State::Done) {
            let tasks = answer.forwarder.tasks.clone();
            tasks.spawn(drain(*answer));
        }
    }
}

async fn drain(mut answer: Answer) {
    let forwarder = Arc::clone(&answer.forwarder);
    let place = forwarder.place(answer.id);
    let end = if place.is_some() {
        tokio::select! {
            end = read_on(&mut answer) => end,
            () = tokio::time::sleep(DRAIN_TIMEOUT) => End::Left,
            () = forwarder.hurry.cancelled() => End::BrokenOff,
        }
    } else {
        End::Left
    };
    drop(place);
    // Its outcome is in the log; nobody is left to tell.
    let _ = answer.settle(end).await;
}

async fn read_on(answer: &mut Answer) -> End {
    while let Some(frame) = http_body_util::BodyExt::frame(&mut answer.upstream).await {
        match frame {
            Ok(frame) if !answer.note(&frame) => {}
            Ok(_) => return End::Whole,
            Err(_) => return End::BrokenOff,
        }
    }
    answer.ended()
}
