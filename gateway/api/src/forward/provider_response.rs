//! A provider's response while it passes: its frames are scanned, filtered and recorded, and its end settles the call.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::Frame;
use hyper::body::Incoming;
use tokio::task::JoinHandle;

use super::forwarder::{Forwarder, OpenCall};
use super::response_recorder::ResponseRecorder;
use super::settlement::{ResponseEnd, Unsettled, settle, until_durable};
use super::usage::{ChunkFilter, Scanner};

/// The mark of a body's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// The length or the last chunk marks the end.
    Delimited,
    /// The end is the closing of the connection, which may also be a failure.
    UntilClose,
}

/// Whether a frame completes its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramePosition {
    /// More may follow.
    Inner,
    /// No data follows.
    Last,
}

/// A provider's response, with its scanner, filter and recorder.
pub(super) struct ProviderResponse {
    pub(super) forwarder: Arc<Forwarder>,
    pub(super) call: OpenCall,
    pub(super) status: StatusCode,
    pub(super) upstream: Incoming,
    pub(super) scanner: Scanner,
    /// Removes the usage chunk, if the gateway requested it and the caller did not.
    pub(super) filter: Option<ChunkFilter>,
    /// Records the response, if it may be replayed.
    pub(super) recorder: Option<ResponseRecorder>,
    /// Bytes that follow, if the provider announced its length.
    pub(super) remaining: Option<u64>,
    pub(super) framing: BodyFraming,
}

impl ProviderResponse {
    /// Starts the settlement in a task of its own, which goes on if the caller disconnects.
    pub(super) fn settle(&self, end: ResponseEnd) -> JoinHandle<Result<(), Unsettled>> {
        let settled = settle(self.status, self.scanner.report(), end);
        let forwarder = &self.forwarder;
        let recorder = self.recorder.as_ref().filter(|_| end == ResponseEnd::Complete);
        let closing = recorder.and_then(|recorder| recorder.sealed(&forwarder.app.server_key));
        let app = Arc::clone(&forwarder.app);
        forwarder.tasks.spawn(until_durable(app, self.call, settled, closing, forwarder.abort.clone()))
    }

    /// The kind of end when no frame follows.
    pub(super) fn end(&self) -> ResponseEnd {
        match self.framing {
            BodyFraming::UntilClose if self.scanner.is_within_document() => ResponseEnd::Interrupted,
            BodyFraming::UntilClose | BodyFraming::Delimited => ResponseEnd::Complete,
        }
    }

    /// Scans and records a frame.
    pub(super) fn read(&mut self, frame: &Frame<Bytes>) -> FramePosition {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(frame);
        }
        let Some(data) = frame.data_ref() else { return FramePosition::Last };
        if self.status.is_success() {
            self.scanner.feed(data);
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(data.len() as u64);
        }
        if self.remaining == Some(0) { FramePosition::Last } else { FramePosition::Inner }
    }

    /// The frame as the caller sees it, after the filter; the last frame includes the bytes held back so far.
    pub(super) fn filtered(&mut self, frame: Frame<Bytes>, position: FramePosition) -> Option<Frame<Bytes>> {
        let Some(filter) = &mut self.filter else { return Some(frame) };
        let Some(data) = frame.data_ref() else { return self.held_back().or(Some(frame)) };
        let mut passed = BytesMut::from(filter.pass(data));
        if position == FramePosition::Last {
            passed.extend_from_slice(&filter.end());
        }
        (!passed.is_empty()).then(|| Frame::data(passed.freeze()))
    }

    /// The bytes that the filter held back, for when no frame follows.
    pub(super) fn held_back(&mut self) -> Option<Frame<Bytes>> {
        let held = self.filter.as_mut()?.end();
        (!held.is_empty()).then(|| Frame::data(held))
    }
}
