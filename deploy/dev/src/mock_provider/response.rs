//! The parts of every response: its body and usage, and the canned text.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use super::controls::Controls;

/// The words of a generated text, repeated as often as needed.
const TEXT: [&str; 10] =
    ["This", "is", "the", "mock", "provider", "speaking;", "no", "model", "has", "answered."];

/// The largest number of words in a response.
pub(super) const MAX_WORDS: usize = 100_000;

/// A call with its whole body.
pub(super) struct Call<'a> {
    /// Method, target, headers.
    pub(super) head: &'a Parts,
    /// The whole body.
    pub(super) body: &'a Bytes,
    /// The controls of the call.
    pub(super) controls: &'a Controls<'a>,
    /// The call's id in the journal.
    pub(super) id: &'a str,
}

/// A usage that is reported once this many pieces of the body were sent.
pub(super) struct Report {
    /// The number of pieces, the one that reports included.
    pub(super) pieces: usize,
    /// The usage, verbatim.
    pub(super) usage: String,
}

/// A response, before the controls change how it is sent.
pub(super) struct MockResponse {
    /// The status.
    pub(super) status: StatusCode,
    /// The body's type.
    pub(super) content_type: &'static str,
    /// Headers of this response alone.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The body: one piece, or one per event of a stream.
    pub(super) pieces: Vec<Bytes>,
    /// The usage that the whole body reports, verbatim.
    pub(super) usage: Option<String>,
    /// What the pieces report, in their order.
    pub(super) reports: Vec<Report>,
}

impl MockResponse {
    /// A JSON object that reports `usage`.
    pub(super) fn json(body: String, usage: Option<String>) -> Self {
        Self::whole("application/json", body.into(), usage)
    }

    /// A body in one piece that reports `usage`.
    pub(super) fn whole(content_type: &'static str, body: Bytes, usage: Option<String>) -> Self {
        let reports = usage.iter().map(|usage| Report { pieces: 1, usage: usage.clone() }).collect();
        Self { status: StatusCode::OK, content_type, headers: Vec::new(), pieces: vec![body], usage, reports }
    }
}

/// The pieces of a streamed body, and what they report.
#[derive(Default)]
pub(super) struct Stream {
    pieces: Vec<Bytes>,
    reports: Vec<Report>,
}

impl Stream {
    /// Adds a piece as it is.
    pub(super) fn piece(&mut self, text: String) {
        self.pieces.push(text.into());
    }

    /// Adds a binary piece.
    pub(super) fn bytes(&mut self, bytes: Bytes) {
        self.pieces.push(bytes);
    }

    /// Adds a server-sent event without a name.
    pub(super) fn data(&mut self, data: &str) {
        self.piece(format!("data: {data}\n\n"));
    }

    /// Adds a named server-sent event.
    pub(super) fn event(&mut self, name: &str, data: &str) {
        self.piece(format!("event: {name}\ndata: {data}\n\n"));
    }

    /// The last piece reports this usage.
    pub(super) fn reports(&mut self, usage: Option<&str>) {
        let pieces = self.pieces.len();
        self.reports.extend(usage.map(|usage| Report { pieces, usage: usage.to_owned() }));
    }

    /// The response of this type. Its usage is the last that it reports.
    pub(super) fn response(self, content_type: &'static str) -> MockResponse {
        MockResponse {
            status: StatusCode::OK,
            content_type,
            headers: Vec::new(),
            pieces: self.pieces,
            usage: self.reports.last().map(|report| report.usage.clone()),
            reports: self.reports,
        }
    }

    /// The response as server-sent events.
    pub(super) fn events(self) -> MockResponse {
        self.response("text/event-stream")
    }
}

/// The usage to report: the control `usage` verbatim, or else `counted`. None when the control is `none`.
pub(super) fn usage_of(call: &Call<'_>, counted: impl FnOnce() -> String) -> Option<String> {
    match call.controls.text("usage") {
        Some(usage) if usage == "none" => None,
        Some(usage) => Some(usage),
        None => Some(counted()),
    }
}

/// The JSON object with an added member `usage`, whose text need not be valid JSON.
pub(super) fn with_usage(object: &Value, usage: Option<&str>) -> String {
    with_member(object, "usage", usage)
}

/// The JSON object with an added member, whose text need not be valid JSON.
pub(super) fn with_member(object: &Value, name: &str, value: Option<&str>) -> String {
    let mut text = object.to_string();
    if let Some(value) = value {
        text.pop();
        text.push_str(",\"");
        text.push_str(name);
        text.push_str("\":");
        text.push_str(value);
        text.push('}');
    }
    text
}

/// The number of words that the control `words` sets for the response.
pub(super) fn word_count(call: &Call<'_>) -> usize {
    call.controls.number("words").unwrap_or(TEXT.len()).min(MAX_WORDS)
}

/// A generated text of `count` words, word by word. All but the first begin with a space.
pub(super) fn words(count: usize) -> impl Iterator<Item = String> {
    let cycle = TEXT.iter().cycle().take(count).enumerate();
    cycle.map(|(at, word)| if at == 0 { (*word).to_owned() } else { format!(" {word}") })
}
