//! A provider's response while it passes: its frames are scanned, filtered and recorded, and its end settles the call.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::call_times::CallTimes;
use super::call_trace::Exchange;
use super::caller_pauses::CallerPauses;
use super::drain::ReadingOn;
use super::ending::{InFlight, Opening, settle_late};
use super::forwarder::{Forwarder, OpenCall};
use super::pieces::Pieces;
use super::response_change::{NotConverted, ResponseChange};
use super::response_recorder::ResponseRecorder;
use super::settlement::{ResponseEnd, Unsettled, settle, until_durable};
use super::turns::ResponseConversions;
use super::usage::{Reading, Scanner};
use crate::metrics::CallLabel;
use crate::providers::UsageLimit;

/// The mark of a body's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// The length or the last chunk marks the end.
    Delimited,
    /// The end is the closing of the connection, which may also be a failure.
    UntilClose,
}

impl BodyFraming {
    /// The framing of a response with these headers (RFC 9112, section 6.3), whose only transfer coding may be `chunked`.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let is_delimited = match headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            Some(codings) => {
                let last = codings.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
                last.trim_ascii().eq_ignore_ascii_case(b"chunked")
            }
            None => headers.contains_key(CONTENT_LENGTH),
        };
        if is_delimited { Self::Delimited } else { Self::UntilClose }
    }
}

/// Whether a frame completes its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramePosition {
    /// More may follow.
    Inner,
    /// No data follows.
    Last,
}

/// What has come of a response. It is scanned already.
pub(super) enum Come {
    /// A piece, after which more may follow.
    Inner(Frame<Bytes>),
    /// The end, with the last frame if there is one.
    End(Option<Frame<Bytes>>),
}

/// What the caller gets of what has come.
pub(super) enum Passed {
    /// Of a piece of so many bytes, after which more may follow.
    Inner(Option<Frame<Bytes>>, usize),
    /// At the end.
    End(Result<Option<Frame<Bytes>>, NotConverted>),
}

/// A provider's response, with its scanner, filter and recorder.
pub(super) struct ProviderResponse {
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) call: OpenCall,
    pub(super) status: StatusCode,
    pub(super) upstream: Pieces<Incoming>,
    pub(super) scanner: Scanner,
    /// What is done to it before the caller gets it.
    pub(super) change: ResponseChange,
    /// The turns of what takes long of that.
    pub(super) conversions: ResponseConversions,
    /// What waits for its turn.
    pub(super) come: Option<Come>,
    /// Records the response, if it may be replayed.
    pub(super) recorder: Option<ResponseRecorder>,
    /// Bytes that follow, if the provider announced its length.
    pub(super) remaining: Option<u64>,
    pub(super) framing: BodyFraming,
    /// The usage that it may report.
    pub(super) usage_limit: UsageLimit,
    /// How long the caller, or waits to be converted, have held the response up.
    pub(super) caller_pauses: CallerPauses,
    pub(super) times: CallTimes,
    pub(super) exchange: Exchange,
    pub(super) in_flight: InFlight,
    /// Is sent once its opening is durable or in doubt, and dropped if it failed.
    pub(super) opened: oneshot::Receiver<Opening>,
    /// How long it is read, if its caller disconnected before it began.
    pub(super) reading_on: Option<ReadingOn>,
}

impl ProviderResponse {
    /// Starts the settlement in a task of its own, which goes on if the caller disconnects. It returns how the response is
    /// taken to have ended: one without a length that ends within a document was broken off.
    pub(super) fn settle(self, end: ResponseEnd) -> JoinHandle<Result<ResponseEnd, Unsettled>> {
        let broken_off = self.broken_off();
        let Self {
            forwarder,
            call,
            status,
            scanner,
            recorder,
            framing,
            usage_limit,
            mut exchange,
            in_flight,
            opened,
            ..
        } = self;
        exchange.received();
        let (tasks, trace) = (forwarder.tasks.clone(), exchange.trace().clone());
        tasks.spawn(Box::pin(trace.logged(async move {
            let Reading { report, is_within_document } = scanner.finish(&forwarder.tasks).await;
            let end = match (end, framing) {
                (ResponseEnd::Complete, BodyFraming::UntilClose) if is_within_document => broken_off,
                (end, BodyFraming::UntilClose | BodyFraming::Delimited) => end,
            };
            let mut recorder = recorder.filter(|_| end == ResponseEnd::Complete);
            let stays_in_flight = recorder.as_mut().and_then(ResponseRecorder::take_in_flight);
            let OpenCall { partition, request_id, merchant_id, .. } = call;
            let (app, abort) = (&forwarder.app, forwarder.abort.clone());
            let closing = recorder.and_then(|recorder| recorder.sealed(&app.server_key));
            let turn = forwarder.answer_turn(merchant_id, closing.as_ref()).await;
            let settlement = settle(status, report, usage_limit, end);
            let settling = exchange.ended(&settlement);
            let settled = until_durable(app, partition, request_id, &settlement, closing, abort);
            let settled = settling.run(settled).await;
            drop((turn, stays_in_flight));
            match settled {
                Ok(unmetered) => {
                    app.metrics.forward.settled(CallLabel::of(call.provider, &settlement, unmetered));
                }
                Err(Unsettled::Ended) => {
                    let forwarder = Arc::clone(&forwarder);
                    forwarder.tasks.clone().spawn(async move {
                        if let Ok(opening) = opened.await {
                            // A call with an idempotency key is sent once its opening is durable. So it is never in doubt, and
                            // no key ends here.
                            settle_late(&forwarder, call, settlement, None, opening);
                        }
                    });
                }
                // It is counted.
                Err(Unsettled::Stopping | Unsettled::Unsettleable) => {}
            }
            drop(in_flight);
            settled.map(|_| end)
        })))
    }

    /// The times of the call at the end of its response.
    pub(super) fn take_times(&mut self) -> CallTimes {
        std::mem::replace(&mut self.times, CallTimes::begin()).without(self.caller_pauses.total())
    }

    /// How the response ends if the provider now breaks it off.
    pub(super) fn broken_off(&self) -> ResponseEnd {
        if self.caller_pauses.are_long() { ResponseEnd::CALLER_GONE } else { ResponseEnd::Interrupted }
    }

    /// Ready once the pieces so far are read, and other tasks have run.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.upstream.poll_pause(cx));
        self.scanner.poll_ready(cx, &self.forwarder.tasks)
    }

    /// What the caller gets of what comes next. If it takes long to convert, it waits for its turn. Its usage is read before.
    pub(super) fn poll_passed(&mut self, cx: &mut Context<'_>) -> Poll<Result<Passed, hyper::Error>> {
        let come = match self.come.take() {
            Some(come) => come,
            None => match ready!(self.upstream.poll_piece(cx)) {
                Some(Ok(frame)) => match self.read(&frame) {
                    FramePosition::Inner => Come::Inner(frame),
                    FramePosition::Last => Come::End(Some(frame)),
                },
                None => Come::End(None),
                Some(Err(error)) => return Poll::Ready(Err(error)),
            },
        };
        let data = match &come {
            Come::Inner(frame) => data_of(frame),
            Come::End(last) => last.as_ref().map(data_of).unwrap_or_default(),
        };
        let work = match &come {
            Come::Inner(_) => self.change.work_on(data),
            Come::End(_) => self.change.work_at_end(data),
        };
        let turn = self.conversions.poll(cx, work, || self.change.extent(data, work));
        if let Come::Inner(_) = come {
            self.caller_pauses.conversion_asked(&turn);
        }
        let Poll::Ready(turn) = turn else {
            self.come = Some(come);
            return Poll::Pending;
        };
        let passed = match come {
            Come::Inner(frame) => {
                let bytes = data_of(&frame).len();
                let passed = self.pass(frame);
                let written = passed.as_ref().map_or(0, |frame| data_of(frame).len());
                self.upstream.written(written.saturating_sub(bytes));
                if self.change.is_ending() {
                    self.come = Some(Come::Inner(Frame::data(Bytes::new())));
                }
                Passed::Inner(passed, bytes)
            }
            Come::End(last) => Passed::End(self.end(last)),
        };
        drop(turn);
        Poll::Ready(Ok(passed))
    }

    /// No caller is left to get what comes.
    pub(super) fn leave(&mut self) {
        self.change.leave(self.recorder.as_ref().is_some_and(ResponseRecorder::records));
    }

    /// Whether something has come and not passed.
    pub(super) const fn has_come(&self) -> bool {
        self.come.is_some() || self.upstream.has_come()
    }

    /// Scans a piece.
    fn read(&mut self, frame: &Frame<Bytes>) -> FramePosition {
        let Some(data) = frame.data_ref() else { return FramePosition::Last };
        if self.status.is_success() {
            self.scanner.feed(data);
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(data.len() as u64);
        }
        if self.remaining == Some(0) { FramePosition::Last } else { FramePosition::Inner }
    }

    /// What the caller gets of a frame that is not the last. It is recorded.
    fn pass(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let passed = self.change.pass(frame);
        self.record(passed.as_ref());
        passed
    }

    /// What the caller gets at the end, of the last frame and of what was held back. It is recorded.
    fn end(&mut self, last: Option<Frame<Bytes>>) -> Result<Option<Frame<Bytes>>, NotConverted> {
        let end = self.change.end(last);
        match &end {
            Ok(passed) => self.record(passed.as_ref()),
            Err(_) => self.recorder = None,
        }
        end
    }

    fn record(&mut self, frame: Option<&Frame<Bytes>>) {
        if let (Some(recorder), Some(frame)) = (&mut self.recorder, frame) {
            recorder.record(frame);
        }
    }
}

/// The data of a frame; none of trailers.
fn data_of(frame: &Frame<Bytes>) -> &[u8] {
    frame.data_ref().map(|data| &data[..]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_body_is_delimited_by_its_length_or_by_its_last_chunk() {
        let framing = |headers: &[(http::HeaderName, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            BodyFraming::of(&headers.collect())
        };
        for delimited in ["chunked", "Chunked", "chunked, chunked", "identity ,\tchunked "] {
            assert_eq!(framing(&[(TRANSFER_ENCODING, delimited)]), BodyFraming::Delimited, "{delimited}");
        }
        assert_eq!(framing(&[(TRANSFER_ENCODING, "identity")]), BodyFraming::UntilClose);
        let both = [(CONTENT_LENGTH, "1"), (TRANSFER_ENCODING, "identity")];
        assert_eq!(framing(&both), BodyFraming::UntilClose, "the length does not count then");
        assert_eq!(framing(&[(CONTENT_LENGTH, "1")]), BodyFraming::Delimited);
        assert_eq!(framing(&[]), BodyFraming::UntilClose);
    }
}
