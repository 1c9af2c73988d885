//! The parts of every response: its body and usage, and the canned text.

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

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

/// A response, before the controls change how it is sent.
pub(super) struct MockResponse {
    /// The status.
    pub(super) status: StatusCode,
    /// The body's type.
    pub(super) content_type: &'static str,
    /// The body: one piece, or one per event of a stream.
    pub(super) pieces: Vec<Bytes>,
    /// The usage reported in the body, verbatim.
    pub(super) usage: Option<String>,
}

impl MockResponse {
    /// An error in OpenAI's shape.
    pub(super) fn error(status: StatusCode, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": "mock_error", "code": status.as_u16()}});
        Self { status, ..Self::json(body.to_string(), None) }
    }

    /// A JSON object that reports `usage`.
    pub(super) fn json(body: String, usage: Option<String>) -> Self {
        let pieces = vec![Bytes::from(body)];
        Self { status: StatusCode::OK, content_type: "application/json", pieces, usage }
    }

    /// A stream of server-sent events that reports `usage`.
    pub(super) fn events(events: Vec<String>, usage: Option<String>) -> Self {
        let pieces = events.into_iter().map(Bytes::from).collect();
        Self { status: StatusCode::OK, content_type: "text/event-stream", pieces, usage }
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
    let mut text = object.to_string();
    if let Some(usage) = usage {
        text.pop();
        text.push_str(",\"usage\":");
        text.push_str(usage);
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
