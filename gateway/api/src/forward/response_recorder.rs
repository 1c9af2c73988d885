//! Records a response, so that it can be replayed to a later call with the same idempotency key.

use bytes::{Bytes, BytesMut};
use farthing_core::idempotency::ClaimId;
use farthing_core::secret::ServerKey;
use farthing_log::appender::ClaimEnd;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::Frame;

use crate::idempotency::StoredResponse;

/// The longest body that is recorded, in bytes.
const MAX_RECORDED: usize = 256 * 1024;

/// The content types of streamed responses, which are not recorded.
const STREAMS: [&str; 4] =
    ["text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"];

/// A response being recorded for one idempotency key.
#[derive(Debug)]
pub(super) struct ResponseRecorder {
    claim: ClaimId,
    /// `None` once the response turns out not to be recordable.
    head: Option<(StatusCode, HeaderMap)>,
    body: BytesMut,
}

impl ResponseRecorder {
    /// A recorder of the response with this head. It records nothing if the response is a stream or a 5xx, or if the
    /// request is not `replayable`.
    pub(super) fn new(claim: ClaimId, replayable: bool, status: StatusCode, headers: &HeaderMap) -> Self {
        let content_type =
            headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let records = replayable && !status.is_server_error() && !STREAMS.contains(&essence.as_str());
        let head = records.then(|| (status, headers.clone()));
        Self { claim, head, body: BytesMut::new() }
    }

    /// Whether the response is recorded still.
    pub(super) const fn records(&self) -> bool {
        self.head.is_some()
    }

    /// Records the next frame.
    pub(super) fn record(&mut self, frame: &Frame<Bytes>) {
        if self.head.is_none() {
            return;
        }
        match frame.data_ref() {
            Some(data) if self.body.len() + data.len() <= MAX_RECORDED => self.body.extend_from_slice(data),
            // The body is too long, or it has trailers, which cannot be replayed.
            Some(_) | None => {
                self.head = None;
                self.body = BytesMut::new();
            }
        }
    }

    /// The complete response, sealed for its idempotency key; `None` if it was not recorded.
    pub(super) fn sealed(self, server_key: &ServerKey) -> Option<(ClaimId, ClaimEnd)> {
        let (status, headers) = self.head?;
        let response = StoredResponse { status, headers, body: self.body.freeze() };
        let sealed = response.seal(server_key, &self.claim);
        Some((self.claim, ClaimEnd::Answer(sealed)))
    }
}
