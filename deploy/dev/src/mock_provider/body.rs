//! A response body sent in pieces, with pauses between them, and broken off on request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use super::journal::Entry;
use super::response::Report;

/// The pause before a connection is broken, in which the pieces sent so far are flushed.
const BEFORE_BREAK: Duration = Duration::from_millis(20);

/// How a body is sent.
pub(super) struct Delivery {
    /// The pieces.
    pub(super) pieces: VecDeque<Bytes>,
    /// What they report, in their order.
    pub(super) reports: VecDeque<Report>,
    /// The pause between two of them.
    pub(super) interval: Duration,
    /// Break the connection after this many of them.
    pub(super) break_after: Option<usize>,
    /// How the caller finds the end of the body.
    pub(super) framing: Framing,
}

/// How the caller finds the end of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// By the `content-length` in the head.
    Length,
    /// By the chunked transfer encoding.
    Chunked,
}

/// Breaks the connection on purpose.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("broken off on request")]
pub(super) struct BrokenOff;

/// A body that records in the journal how it ended.
pub(super) struct MockBody {
    delivery: Delivery,
    remaining_bytes: u64,
    sent: usize,
    pause: Option<Pin<Box<Sleep>>>,
    entry: Entry,
}

impl MockBody {
    /// A body whose end is recorded in `entry`.
    pub(super) fn new(delivery: Delivery, entry: Entry) -> Self {
        let remaining_bytes = delivery.pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut body = Self { delivery, remaining_bytes, sent: 0, pause: None, entry };
        if body.breaks_now() {
            body.pause = Some(Box::pin(tokio::time::sleep(BEFORE_BREAK)));
        }
        body.record_end();
        body
    }

    fn breaks_now(&self) -> bool {
        self.delivery.break_after.is_some_and(|after| self.sent >= after || self.delivery.pieces.is_empty())
    }

    fn is_over(&self) -> bool {
        self.delivery.pieces.is_empty() && self.delivery.break_after.is_none()
    }

    fn record_report(&mut self) {
        while self.delivery.reports.front().is_some_and(|report| report.pieces <= self.sent) {
            self.entry.reported = self.delivery.reports.pop_front().map(|report| report.usage);
        }
    }

    fn record_end(&mut self) {
        if self.is_over() {
            self.entry.finished = true;
        }
    }
}

impl http_body::Body for MockBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        if self.breaks_now() {
            return Poll::Ready(Some(Err(BrokenOff)));
        }
        let Some(piece) = self.delivery.pieces.pop_front() else { return Poll::Ready(None) };
        self.sent += 1;
        self.remaining_bytes -= piece.len() as u64;
        self.record_report();
        let wait = if self.breaks_now() { BEFORE_BREAK } else { Duration::ZERO }.max(self.delivery.interval);
        if !wait.is_zero() && !self.is_over() {
            self.pause = Some(Box::pin(tokio::time::sleep(wait)));
        }
        self.record_end();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match self.delivery.framing {
            Framing::Length => SizeHint::with_exact(self.remaining_bytes),
            Framing::Chunked if self.is_over() => SizeHint::with_exact(0),
            Framing::Chunked => SizeHint::default(),
        }
    }
}
