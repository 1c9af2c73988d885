//! Records a response, so that it can be replayed to a later call with the same idempotency key.

use bytes::{Bytes, BytesMut};
use farthing_core::idempotency::ClaimId;
use farthing_core::secret::ServerKey;
use farthing_log::appender::ClaimEnd;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::Frame;

use crate::idempotency::StoredResponse;
use crate::serve::CallInFlight;

/// The longest body that is recorded, in bytes.
const MAX_RECORDED: usize = 256 * 1024;

/// The content types of streamed responses, which are not recorded.
const STREAMS: [&str; 5] = [
    "text/event-stream",
    "application/vnd.amazon.eventstream",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
];

/// A response being recorded for one idempotency key.
#[derive(Debug)]
pub(super) struct ResponseRecorder {
    claim: ClaimId,
    /// `None` once the response turns out not to be recordable.
    head: Option<(StatusCode, HeaderMap)>,
    body: BytesMut,
    /// The call is in flight as long as its response is kept to be stored, even if its caller has left: so the limits of calls
    /// bound the memory of the responses that wait.
    in_flight: Option<CallInFlight>,
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
        Self { claim, head, body: BytesMut::new(), in_flight: None }
    }

    /// The same one, which keeps its call in flight while it records.
    pub(super) fn keeping(self, in_flight: Option<CallInFlight>) -> Self {
        let in_flight = in_flight.filter(|_| self.records());
        Self { in_flight, ..self }
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
                self.in_flight = None;
            }
        }
    }

    /// What keeps the call in flight, until the response is stored.
    pub(super) const fn take_in_flight(&mut self) -> Option<CallInFlight> {
        self.in_flight.take()
    }

    /// The complete response, sealed for its idempotency key; `None` if it was not recorded.
    pub(super) fn sealed(self, server_key: &ServerKey) -> Option<(ClaimId, ClaimEnd)> {
        let (status, headers) = self.head?;
        let response = StoredResponse { status, headers, body: self.body.freeze() };
        let sealed = response.seal(server_key, &self.claim);
        Some((self.claim, ClaimEnd::Answer(sealed)))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn recorder(status: StatusCode, media_type: &'static str, replayable: bool) -> ResponseRecorder {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]);
        ResponseRecorder::new(ClaimId::stored("claim".to_owned()), replayable, status, &headers)
    }

    #[test]
    fn streams_are_not_recorded_in_whatever_case_and_with_whatever_parameters() {
        for media_type in STREAMS {
            assert!(!recorder(StatusCode::OK, media_type, true).records(), "{media_type}");
        }
        for media_type in [
            "Application/Vnd.Amazon.EventStream",
            "text/event-stream; charset=utf-8",
            " text/event-stream ;x",
            "application/X-NDJSON",
        ] {
            assert!(!recorder(StatusCode::OK, media_type, true).records(), "{media_type}");
        }
        for media_type in ["application/json", "application/json; text/event-stream", "", "audio/mpeg"] {
            assert!(recorder(StatusCode::OK, media_type, true).records(), "{media_type}");
        }
        let untyped = ClaimId::stored("claim".to_owned());
        assert!(ResponseRecorder::new(untyped, true, StatusCode::OK, &HeaderMap::new()).records());
    }

    #[test]
    fn only_what_may_be_replayed_is_recorded() {
        for (status, replayable, records) in [
            (StatusCode::OK, true, true),
            (StatusCode::BAD_REQUEST, true, true),
            (StatusCode::TOO_MANY_REQUESTS, true, true),
            (StatusCode::INTERNAL_SERVER_ERROR, true, false),
            (StatusCode::OK, false, false),
        ] {
            assert_eq!(recorder(status, "application/json", replayable).records(), records, "{status}");
        }
    }

    #[test]
    fn a_body_is_recorded_up_to_its_bound() {
        let frame = |bytes: usize| Frame::data(Bytes::from(vec![b'x'; bytes]));
        let mut recorder = recorder(StatusCode::OK, "application/json", true);
        for bytes in [0, 1, MAX_RECORDED - 1, 0] {
            recorder.record(&frame(bytes));
        }
        assert!(recorder.records());
        assert_eq!(recorder.body.len(), MAX_RECORDED);
        recorder.record(&frame(1));
        assert!(!recorder.records() && recorder.body.is_empty());
        recorder.record(&frame(1));
        assert!(!recorder.records() && recorder.body.is_empty(), "a part is no response");
    }

    #[test]
    fn a_response_with_trailers_is_not_recorded() {
        let mut recorder = recorder(StatusCode::OK, "application/json", true);
        recorder.record(&Frame::data(Bytes::from_static(b"{}")));
        recorder.record(&Frame::trailers(HeaderMap::new()));
        assert!(!recorder.records() && recorder.body.is_empty());
    }
}
