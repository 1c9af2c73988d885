//! Fuzzing of every reader with any bytes and with mutated documents. `PROPTEST_CASES` says how many cases are made.
//!
//! Nothing panics, what is written is valid, and a stream becomes the same however it is cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;

use crate::conversion::{AnswerOptions, Conversion, Format, RequestFacts};
use crate::json::Json;

const FORMATS: [Format; 4] = [Format::OpenaiChat, Format::OpenaiResponses, Format::Anthropic, Format::Google];

/// The golden documents of all formats and kinds, the converted ones included.
static DOCUMENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut documents = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else {
                documents.push(fs::read(path).unwrap());
            }
        }
    }
    documents
});

/// A change of a document.
#[derive(Clone, Debug)]
enum Mutation {
    Replace(Vec<u8>),
    Insert(Vec<u8>),
    Remove(usize),
    Repeat(usize),
    Truncate,
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let tokens = &[
        "null",
        "true",
        "-1",
        "1e999",
        "0.5",
        "18446744073709551615",
        "\"\"",
        "{}",
        "[]",
        "[[",
        "}",
        "\"",
        ",",
        ":",
        "\\u0000",
        "\\ud800",
        "\n\n",
        "\r",
        "data: ",
        "data: [DONE]\n\n",
        "\u{feff}",
        "\"type\":",
        "\"text\":\"x\",",
        "\"index\":7,",
    ];
    prop_oneof![
        4 => prop::sample::select(&tokens[..]).prop_map(|token| token.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ]
}

fn mutation() -> impl Strategy<Value = (usize, Mutation)> {
    let mutation = prop_oneof![
        3 => piece().prop_map(Mutation::Replace),
        3 => piece().prop_map(Mutation::Insert),
        2 => (1_usize..40).prop_map(Mutation::Remove),
        2 => (1_usize..200).prop_map(Mutation::Repeat),
        1 => Just(Mutation::Truncate),
    ];
    (any::<usize>(), mutation)
}

/// A golden document with a few changes.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    (any::<prop::sample::Index>(), prop::collection::vec(mutation(), 0..4)).prop_map(
        |(document, mutations)| {
            let mut bytes = DOCUMENTS[document.index(DOCUMENTS.len())].clone();
            for (at, mutation) in mutations {
                let at = at % (bytes.len() + 1);
                let end = |size: usize| (at + size).min(bytes.len());
                match mutation {
                    Mutation::Replace(piece) => drop(bytes.splice(at..end(piece.len()), piece)),
                    Mutation::Insert(piece) => drop(bytes.splice(at..at, piece)),
                    Mutation::Remove(size) => drop(bytes.drain(at..end(size))),
                    Mutation::Repeat(size) => {
                        let piece = bytes[at..end(size)].to_vec();
                        drop(bytes.splice(at..at, piece));
                    }
                    Mutation::Truncate => bytes.truncate(at),
                }
            }
            bytes
        },
    )
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => mutated(),
        1 => prop::collection::vec(piece(), 0..60).prop_map(|pieces| pieces.concat()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

fn conversions() -> impl Iterator<Item = Conversion> {
    FORMATS.into_iter().flat_map(|client| {
        FORMATS.into_iter().filter_map(move |provider| Conversion::between(client, provider))
    })
}

/// What becomes of a stream in pieces of this size, and whether it failed.
fn streamed(conversion: Conversion, bytes: &[u8], size: usize) -> (Vec<u8>, Result<(), String>) {
    let mut converter = conversion.stream();
    let mut out = Vec::new();
    for piece in bytes.chunks(size) {
        match converter.feed(piece) {
            Ok(bytes) => out.extend(bytes),
            Err(_) => break,
        }
    }
    let end = converter.finish().map(|bytes| out.extend(bytes)).map_err(|error| error.to_string());
    (out, end)
}

/// Each event is whole, and its data is JSON but for OpenAI's end.
fn are_whole_events(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let text = String::from_utf8(bytes).unwrap();
    prop_assert!(text.is_empty() || text.ends_with("\n\n"));
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        prop_assert!(data == "[DONE]" || Json::parse(data.as_bytes()).unwrap().is_object());
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_request_is_converted_to_json_or_refused(bytes in bytes()) {
        let facts = RequestFacts { max_output_tokens: Some(1000), ..RequestFacts::default() };
        for conversion in conversions() {
            if let Ok(converted) = conversion.request(&bytes, &facts) {
                prop_assert!(Json::parse(&converted.body).unwrap().is_object());
            }
        }
    }

    #[test]
    fn any_response_is_converted_to_json_or_refused(bytes in bytes()) {
        for conversion in conversions() {
            if let Ok(body) = conversion.response(&bytes) {
                prop_assert!(Json::parse(&body).unwrap().is_object());
            }
        }
    }

    #[test]
    fn any_response_becomes_whole_events_or_is_refused(bytes in bytes()) {
        for conversion in conversions() {
            if let Ok(events) = conversion.response_as_stream(&bytes) {
                prop_assert!(!events.is_empty());
                are_whole_events(events)?;
            }
        }
    }

    #[test]
    fn any_error_becomes_an_error_with_a_message(bytes in bytes(), status in 400_u16..600) {
        for conversion in conversions() {
            let body = Json::parse(&conversion.error(status, &bytes)).unwrap();
            prop_assert!(body.get("error").unwrap().get("message").unwrap().as_text().is_some());
        }
    }

    #[test]
    fn any_stream_becomes_the_same_in_any_pieces(bytes in bytes(), size in 1_usize..50) {
        for conversion in conversions() {
            let conversion =
                conversion.for_answer(AnswerOptions { include_usage: true, ..AnswerOptions::default() });
            let whole = streamed(conversion, &bytes, usize::MAX);
            prop_assert_eq!(&streamed(conversion, &bytes, size), &whole);
            are_whole_events(whole.0)?;
        }
    }
}
