//! Coverage-guided fuzzing of the readers of usage, of the crate `farthing-api`: the scanner of JSON, the framing of
//! server-sent events, Amazon's event stream, the filter of chunks, and the options of JSON bodies and forms. See `run`.
//!
//! The readers are private to their crate, so their files are modules of this program.
//!
//! The first byte of an input chooses what is read, the second one the shape and where an answer is cut; the rest is the
//! body. Nothing panics, and an answer reports the same however it is cut.

#![no_main]
#![allow(dead_code, reason = "the gateway uses all of the readers")]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|input: &[u8]| -> Corpus {
    let [kind, choice, body @ ..] = input else { return Corpus::Reject };
    match kind {
        b'j' => usage::answer("application/json", *choice, body),
        b'e' => usage::answer("text/event-stream", *choice, body),
        b'm' => usage::answer("application/vnd.amazon.eventstream", *choice, body),
        b'c' => usage::chunks(*choice, body),
        b'o' => usage::options(body),
        b'f' => usage::form_fields(body),
        _ => return Corpus::Reject,
    }
    Corpus::Keep
});

/// The readers, and what must hold for each.
#[path = "../../../api/src/forward/usage"]
mod usage {
    mod any_case;
    mod chunk;
    mod document;
    mod event_stream;
    mod findings;
    mod form;
    mod framing;
    mod members;
    mod output_limit;
    mod provider_text;
    mod request;
    mod shape;

    use chunk::ChunkFilter;
    use findings::{Extent, Findings, UsageReport};
    use form::{FormExtent, read_form};
    use shape::Shape;

    const SHAPES: [Shape; 7] = [
        Shape::Standard,
        Shape::OpenAi,
        Shape::Anthropic,
        Shape::Google,
        Shape::Cohere,
        Shape::Transcription,
        Shape::Bedrock,
    ];

    /// The most members of an answer that are read. The gateway's limit is higher.
    const MAX_MEMBERS: u64 = 1000;

    /// The size of the pieces of an answer.
    fn size(choice: u8) -> usize {
        1 + usize::from(choice) / SHAPES.len()
    }

    pub(crate) fn answer(content_type: &str, choice: u8, body: &[u8]) {
        let shape = SHAPES[usize::from(choice) % SHAPES.len()];
        let whole = reported(shape, content_type, body, usize::MAX);
        assert_eq!(reported(shape, content_type, body, size(choice)), whole);
    }

    /// What an answer in pieces of this size reports, and whether it ends within a document.
    fn reported(shape: Shape, content_type: &str, body: &[u8], size: usize) -> (UsageReport, bool) {
        let mut findings = Findings::new(shape, content_type);
        for piece in body.chunks(size) {
            findings.feed(piece, MAX_MEMBERS);
        }
        let is_within = findings.is_within_document();
        (findings.report(Extent::Whole), is_within)
    }

    pub(crate) fn chunks(choice: u8, body: &[u8]) {
        let whole = passed(body, usize::MAX);
        assert_eq!(passed(body, size(choice)), whole);
        assert!(whole.len() <= body.len(), "a filter adds nothing");
        let names_usage = body.windows(5).any(|bytes| bytes == b"usage");
        assert!(names_usage || whole == body, "what reports no usage passes unchanged");
    }

    fn passed(body: &[u8], size: usize) -> Vec<u8> {
        let mut filter = ChunkFilter::new();
        let mut out = Vec::new();
        for piece in body.chunks(size) {
            out.extend_from_slice(&filter.pass(piece));
        }
        out.extend_from_slice(&filter.end());
        out
    }

    pub(crate) fn options(body: &[u8]) {
        request::read_request(body);
        let valid = |body: &[u8]| serde_json::from_slice::<&serde_json::value::RawValue>(body).is_ok();
        for changed in [
            request::requesting_usage(body),
            request::naming_model(body, "other"),
            request::without_member(body, "spend_limit"),
        ] {
            assert!(changed.is_none_or(|changed| valid(&changed)), "a body that is changed is JSON");
        }
    }

    pub(crate) fn form_fields(body: &[u8]) {
        let content_type = "multipart/form-data; boundary=b1";
        let whole = read_form(content_type, body, FormExtent::Whole);
        let beginning = read_form(content_type, body, FormExtent::Beginning);
        assert!(whole.is_none() || whole == beginning, "a whole form is its own beginning");
    }
}
