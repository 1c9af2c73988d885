//! Coverage-guided fuzzing of one format, named in `FORMAT`, as the client's and as the provider's. See `run`.
//!
//! The first byte of an input chooses what is read, the second one where a stream is cut; the rest is the document.
//! Nothing panics, what is written is valid, and a stream becomes the same however it is cut.

#![no_main]

use std::sync::LazyLock;

use farthing_formats::{AnswerOptions, Conversion, Format, RequestFacts};
use libfuzzer_sys::{Corpus, fuzz_target};
use serde_json::Value;

const FORMATS: [(&str, Format); 4] = [
    ("openai_chat", Format::OpenaiChat),
    ("openai_responses", Format::OpenaiResponses),
    ("anthropic", Format::Anthropic),
    ("google", Format::Google),
];

static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let name = std::env::var("FORMAT").expect("FORMAT names the format");
    let named = FORMATS.iter().find(|(known, _)| *known == name);
    named.unwrap_or_else(|| panic!("FORMAT is {name}, which is no format")).1
});

fuzz_target!(|input: &[u8]| -> Corpus {
    let [kind, size, document @ ..] = input else { return Corpus::Reject };
    match kind {
        b'q' => requests(document),
        b'r' => responses(document),
        b'e' => errors(document, *size),
        b's' => streams(document, *size),
        _ => return Corpus::Reject,
    }
    Corpus::Keep
});

/// The conversions from clients of the format.
fn of_clients() -> impl Iterator<Item = Conversion> {
    FORMATS.iter().filter_map(|(_, provider)| Conversion::between(*FORMAT, *provider))
}

/// The conversions of answers of providers of the format.
fn of_providers() -> impl Iterator<Item = Conversion> {
    FORMATS.iter().filter_map(|(_, client)| Conversion::between(*client, *FORMAT))
}

fn requests(document: &[u8]) {
    let facts = RequestFacts { max_output_tokens: Some(1000), ..RequestFacts::default() };
    for conversion in of_clients() {
        if let Ok(converted) = conversion.request(document, &facts) {
            is_object(&converted.body);
        }
    }
}

fn responses(document: &[u8]) {
    for conversion in of_providers() {
        if let Ok(body) = conversion.response(document) {
            is_object(&body);
        }
        if let Ok(events) = conversion.response_as_stream(document) {
            assert!(!events.is_empty(), "an answer has events");
            are_events(events);
        }
    }
}

fn errors(document: &[u8], status: u8) {
    for conversion in of_providers() {
        let body = is_object(&conversion.error(400 + u16::from(status % 200), document));
        assert!(body["error"]["message"].is_string(), "{body}");
    }
}

fn streams(document: &[u8], size: u8) {
    for conversion in of_providers() {
        let answer = AnswerOptions { include_usage: true, ..AnswerOptions::default() };
        let conversion = conversion.for_answer(answer);
        let whole = streamed(conversion, document, usize::MAX);
        assert_eq!(streamed(conversion, document, usize::from(size).max(1)), whole);
        are_events(whole.0);
    }
}

/// Asserts that a stream is whole events, with JSON but for OpenAI's end.
fn are_events(bytes: Vec<u8>) {
    let text = String::from_utf8(bytes).expect("a stream is text");
    assert!(text.is_empty() || text.ends_with("\n\n"), "the last event is whole");
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if data != "[DONE]" {
            is_object(data.as_bytes());
        }
    }
}

/// What becomes of a stream in pieces of this size, and whether it failed.
fn streamed(conversion: Conversion, document: &[u8], size: usize) -> (Vec<u8>, Result<(), String>) {
    let mut converter = conversion.stream();
    let mut out = Vec::new();
    for piece in document.chunks(size) {
        match converter.feed(piece) {
            Ok(bytes) => out.extend(bytes),
            Err(_) => break,
        }
    }
    let end = converter.finish().map(|bytes| out.extend(bytes)).map_err(|error| error.to_string());
    (out, end)
}

/// Asserts that the text is a JSON object. Read by another library than the one under test.
fn is_object(text: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(text).expect("what is written is JSON");
    assert!(value.is_object(), "{value}");
    value
}
