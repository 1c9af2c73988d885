//! The members of an answer that metering needs, as they are found in it.

use chrono::{DateTime, Datelike as _, Utc};
use http::HeaderMap;

use super::document::Member;
use super::framing::Framing;
use super::provider_text::{answered_string, clean_answer};
use super::shape::{ReportedUsage, Shape, TokenCounts};
use super::streamed_text::StreamedText;

/// The facts that a provider's answer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsageReport {
    pub(crate) reported: ReportedUsage,
    /// Whether the stream has so far reported only the usage that it begins with, as Anthropic's do.
    pub(crate) is_preliminary: bool,
    /// Whether the rest of the answer could not be read.
    pub(crate) is_partly_read: bool,
    /// The text of the last `usage`.
    pub(crate) raw_usage: Option<String>,
    pub(crate) response_id: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) timestamp: Option<DateTime<Utc>>,
    /// The bytes of the text that was streamed, if they were to be counted.
    pub(crate) streamed_text: u64,
}

/// The longest raw usage that is stored, in characters.
const MAX_RAW: usize = 4096;

/// How far an answer was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// To the end of what came.
    Whole,
    /// The rest could not be read.
    Partial,
}

/// What was found in an answer.
#[derive(Debug)]
pub(super) struct Findings {
    shape: Shape,
    framing: Framing,
    counts: TokenCounts,
    /// Whether the only usage so far is that of the beginning of a stream.
    has_first_usage_alone: bool,
    raw_usage: Option<String>,
    response_id: Option<String>,
    model: Option<String>,
    timestamp: Option<DateTime<Utc>>,
    streamed_text: Option<Box<StreamedText>>,
    /// The number of members found.
    members: u64,
    /// Whether there were more members than were to be read.
    has_too_many: bool,
    /// Whether the answer may be one of JSON or of events, by its media type.
    may_be_documents: bool,
}

impl Findings {
    pub(super) fn new(shape: Shape, content_type: &str) -> Self {
        Self {
            shape,
            may_be_documents: may_be_documents(content_type),
            framing: Framing::of(content_type, shape.selection()),
            counts: TokenCounts::default(),
            has_first_usage_alone: false,
            raw_usage: None,
            response_id: None,
            model: None,
            timestamp: None,
            streamed_text: None,
            members: 0,
            has_too_many: false,
        }
    }

    /// Counts the text, too.
    pub(super) fn count_text(&mut self) {
        self.streamed_text = Some(Box::default());
    }

    /// Reads the counts in the headers of an answer, where its provider gives them. What the body reports replaces them.
    pub(super) fn read_headers(&mut self, headers: &HeaderMap) {
        for (name, count) in self.shape.header_counts() {
            let number = headers.get(*name).and_then(|value| value.to_str().ok());
            if let Some(number) = number {
                self.counts.report(self.shape, Member::Usage, &format!("{{\"{count}\":{number}}}"));
            }
        }
    }

    /// Reads the next bytes of the answer, and at most `max_members` members of all of it.
    pub(super) fn feed(&mut self, bytes: &[u8], max_members: u64) {
        let Self {
            shape,
            framing,
            counts,
            has_first_usage_alone,
            raw_usage,
            response_id,
            model,
            timestamp,
            streamed_text,
            members,
            has_too_many,
            may_be_documents: _,
        } = self;
        if let (Some(text), Framing::Json(..) | Framing::Events(..)) = (streamed_text, &*framing) {
            text.feed(bytes);
        }
        framing.feed(bytes, |member, text| {
            *members += 1;
            if *members > max_members {
                *has_too_many = true;
                return;
            }
            match member {
                // The first invalid one decides: whoever repeats it a million times causes no further work.
                Member::Usage
                | Member::UsageMetadata
                | Member::ItemUsage
                | Member::FirstUsage
                | Member::Duration
                    if counts.is_invalid() => {}
                Member::Usage | Member::UsageMetadata | Member::ItemUsage | Member::FirstUsage => {
                    if counts.report(*shape, member, text) {
                        let was_alone = *has_first_usage_alone || raw_usage.is_none();
                        *has_first_usage_alone = member == Member::FirstUsage && was_alone;
                        *raw_usage = Some(clean_answer(text, MAX_RAW));
                    }
                }
                Member::Duration => counts.report_duration(text),
                Member::Id => replace(response_id, answered_string(text)),
                Member::Model => replace(model, answered_string(text)),
                Member::Created => replace(timestamp, instant(text)),
                // Read where it was found.
                Member::Bytes => {}
            }
        });
    }

    /// Whether nothing more is to be read: a usage was invalid, or there were too many members.
    pub(super) const fn are_final(&self) -> bool {
        self.counts.is_invalid() || self.has_too_many
    }

    /// Whether the answer so far ends within a document. What is no JSON has brackets by chance, even as its first byte, and no
    /// documents; of messages that cannot be read on, nothing is known.
    pub(super) fn is_within_document(&self) -> bool {
        self.may_be_documents && !self.framing.is_of_another_form() && self.framing.is_within_document()
    }

    /// The facts of an answer that was read so far.
    pub(super) fn report(self, extent: Extent) -> UsageReport {
        let is_stream = matches!(self.framing, Framing::Events(..) | Framing::Messages(_));
        let is_preliminary = is_stream && self.has_first_usage_alone;
        let reported = match (self.counts.reported(self.shape), extent) {
            (ReportedUsage::Nothing, Extent::Partial) => ReportedUsage::Unread,
            (ReportedUsage::Nothing, Extent::Whole)
                if self.framing.is_of_another_form() || self.framing.is_within_document() =>
            {
                ReportedUsage::Unread
            }
            (reported, Extent::Whole | Extent::Partial) => reported,
        };
        UsageReport {
            reported,
            is_preliminary,
            is_partly_read: extent == Extent::Partial,
            raw_usage: self.raw_usage,
            response_id: self.response_id,
            model: self.model,
            timestamp: self.timestamp,
            streamed_text: self.streamed_text.as_ref().map_or(0, |text| text.bytes()),
        }
    }
}

/// The media types of JSON and of events, beside those that end with `+json`; the last is that of an answer without one.
const DOCUMENTS: [&str; 14] = [
    "application/json",
    "application/x-json",
    "text/json",
    "text/x-json",
    "application/json-seq",
    "application/ndjson",
    "application/x-ndjson",
    "application/jsonl",
    "application/x-jsonl",
    "application/jsonlines",
    "application/x-jsonlines",
    "text/event-stream",
    "application/vnd.amazon.eventstream",
    "",
];

/// Whether the media type is one of JSON or of events, or missing.
fn may_be_documents(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    DOCUMENTS.contains(&essence.as_str()) || essence.ends_with("+json") || essence.ends_with("+json-seq")
}

fn replace<T>(known: &mut Option<T>, found: Option<T>) {
    if found.is_some() {
        *known = found;
    }
}

/// The most digits of a number of milliseconds that is read: it fits, and an instant before the year 10000 has 15.
const MAX_MILLISECOND_DIGITS: usize = 18;

/// Seconds since 1970, which may have a fraction, or an ISO 8601 text.
fn instant(json: &str) -> Option<DateTime<Utc>> {
    let at = if let Ok(seconds) = json.parse::<i64>() {
        DateTime::from_timestamp(seconds, 0)?
    } else if let Some(milliseconds) = milliseconds(json) {
        DateTime::from_timestamp_millis(milliseconds)?
    } else {
        let text: String = serde_json::from_str(json).ok()?;
        DateTime::parse_from_rfc3339(&text).ok()?.with_timezone(&Utc)
    };
    (1970..=9999).contains(&at.year()).then(|| farthing_core::command::to_millisecond(at))
}

/// The whole milliseconds in a number of seconds, from its digits: a float does not hold all of them. `None` if it is
/// negative or far too large.
fn milliseconds(seconds: &str) -> Option<i64> {
    let (mantissa, exponent) = match seconds.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
        None => (seconds, 0_i64),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if whole.is_empty() || !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let wanted = i64::try_from(whole.len()).ok()?.checked_add(3)?.checked_add(exponent)?;
    let wanted = usize::try_from(wanted).ok().filter(|wanted| *wanted <= MAX_MILLISECOND_DIGITS)?;
    let padded = digits().chain(std::iter::repeat(b'0')).take(wanted);
    Some(padded.fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use chrono::SecondsFormat;
    use proptest::prelude::*;

    use super::super::event_stream::tests::message;
    use super::*;

    const EVENTS: &str = "text/event-stream";
    const MESSAGES: &str = "application/vnd.amazon.eventstream";
    const JSON: &str = "application/json";
    const BEGIN: &str =
        r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":9,"output_tokens":1}}}"#;
    const DELTA: &str = r#"{"type":"message_delta","usage":{"output_tokens":7}}"#;
    const CONVERSED: &str = r#"{"usage":{"inputTokens":9,"outputTokens":7}}"#;
    const METRICS: &str =
        r#"{"type":"message_stop","amazon-bedrock-invocationMetrics":{"outputTokenCount":7}}"#;
    const COMPLETION: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}"#;

    fn event(document: &str) -> Vec<u8> {
        format!("data: {document}\n\n").into_bytes()
    }

    fn bare(document: &str) -> Vec<u8> {
        message(3, document.as_bytes())
    }

    fn wrapped(document: &str) -> Vec<u8> {
        bare(&format!(r#"{{"bytes":"{}"}}"#, STANDARD.encode(document)))
    }

    #[test]
    fn an_instant_is_read_exactly_and_cut_to_milliseconds() {
        let read = |json: &str| instant(json).map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true));
        for (json, at) in [
            ("1741476542", "2025-03-08T23:29:02.000Z"),
            ("1741476542.0", "2025-03-08T23:29:02.000Z"),
            ("1741476542.25", "2025-03-08T23:29:02.250Z"),
            ("1741476542.9999999999999999999999999999999999999999", "2025-03-08T23:29:02.999Z"),
            ("1741476542.0009", "2025-03-08T23:29:02.000Z"),
            // The nearest float is 1741476542.0009999…, which is less.
            ("1741476542.001", "2025-03-08T23:29:02.001Z"),
            ("1.74147654225e9", "2025-03-08T23:29:02.250Z"),
            ("1.741476542E+9", "2025-03-08T23:29:02.000Z"),
            ("17414765422500e-4", "2025-03-08T23:29:02.250Z"),
            ("0.00174147654225e12", "2025-03-08T23:29:02.250Z"),
            ("0", "1970-01-01T00:00:00.000Z"),
            ("0.5", "1970-01-01T00:00:00.500Z"),
            ("253402300799.9999", "9999-12-31T23:59:59.999Z"),
            (r#""2025-03-08T23:29:02.2509Z""#, "2025-03-08T23:29:02.250Z"),
        ] {
            assert_eq!(read(json).as_deref(), Some(at), "{json}");
        }
        let long = format!("{}.5", "9".repeat(1000));
        for json in [
            "-1",
            "-1.5",
            "253402300800",
            "253402300800.0",
            // Milliseconds.
            "1741476542000",
            "1741476542000.5",
            "9223372036854775807",
            "9223372036854775807.5",
            "1e15",
            "1e400",
            "1e-400",
            "1e9223372036854775807",
            "1e99999999999999999999",
            "1e",
            ".5",
            "1.5.5",
            "1,5",
            "NaN",
            "null",
            "true",
            "{}",
            r#""1741476542.5""#,
            "",
            long.as_str(),
        ] {
            assert_eq!(read(json), None, "{json}");
        }
    }

    proptest! {
        #[test]
        fn a_decimal_instant_is_that_of_its_whole_seconds_and_milliseconds(
            seconds in 0_i64..253_402_300_800,
            fraction in "[0-9]{1,30}",
        ) {
            let milliseconds: i64 = format!("{fraction}000")[..3].parse().unwrap();
            let at = DateTime::from_timestamp_millis(seconds * 1_000 + milliseconds);
            prop_assert_eq!(instant(&format!("{seconds}.{fraction}")), at);
            let digits = fraction.len();
            prop_assert_eq!(instant(&format!("{seconds}{fraction}e-{digits}")), at);
        }
    }

    #[test]
    fn an_answer_ends_within_a_document_only_if_it_is_one_of_json() {
        let partial_message = String::from_utf8_lossy(&message(3, b"{}")[..10]).into_owned();
        for (content_type, body, is_within) in [
            (JSON, r#"{"usage":{"tokens":1}}"#, false),
            (JSON, r#"{"usage":{"tokens":1}"#, true),
            (JSON, "\u{feff} [{}", true),
            ("", "{", true),
            ("Application/JSON; charset=utf-8", r#"{"text":"half"#, true),
            ("application/problem+json", "{", true),
            ("text/json", "{", true),
            ("application/geo+json-seq", "{", true),
            ("application/json-seq", "{", true),
            ("application/x-ndjson", "{}\n{", true),
            ("application/ndjson", "{}\n{", true),
            ("application/jsonl; charset=utf-8", "{}\n{}\n", false),
            ("application/jsonl", "{}\n[", true),
            // By its media type it is no JSON, whatever it begins with.
            ("text/plain; charset=utf-8", r#"{"text":"half"#, false),
            ("text/plain", "[2026-11-30] \u{1b}[32mINFO", false),
            ("text/x-template", "{% if a %}{", false),
            ("application/octet-stream", "[{", false),
            ("application/jsonish", "{", false),
            // Brackets in a text, and in what is no text.
            (JSON, "Sorry {", false),
            ("text/plain", "I see (and [hear", false),
            ("text/html", "<script>if (a) {", false),
            ("application/octet-stream", "\u{1}\u{2}{[", false),
            ("audio/mpeg", "ID3{", false),
            ("audio/pcm", "{{[", false),
            ("Image/PNG", "[", false),
            ("video/mp4", "{", false),
            (EVENTS, "data: {\"a\":1}\n\n", false),
            (EVENTS, "data: {\"a\":", true),
            (EVENTS, "<html>{", false),
            (MESSAGES, partial_message.as_str(), true),
            // A message of impossible lengths, which is not read on.
            (MESSAGES, "\0\0\0\0\0\0\0\0\0\0\0\0", false),
            (MESSAGES, "\0\0\0\0\0\0\0\0\0\0\0\0{", false),
        ] {
            for piece in [1, 1000] {
                let mut findings = Findings::new(Shape::Standard, content_type);
                body.as_bytes().chunks(piece).for_each(|bytes| findings.feed(bytes, 100));
                assert_eq!(findings.is_within_document(), is_within, "{content_type} {body:?}");
            }
        }
    }

    #[test]
    fn what_ends_within_something_is_unread_whatever_its_media_type() {
        let broken = String::from_utf8(vec![0; 12]).unwrap();
        for (content_type, body) in [
            (JSON, "{"),
            ("text/plain", "[2026-11-30] \u{1b}[32mINFO"),
            ("audio/pcm", "{["),
            (MESSAGES, broken.as_str()),
        ] {
            let mut findings = Findings::new(Shape::Standard, content_type);
            findings.feed(body.as_bytes(), 100);
            assert_eq!(findings.report(Extent::Whole).reported, ReportedUsage::Unread, "{content_type}");
        }
    }

    #[test]
    fn the_usage_that_a_stream_begins_with_is_preliminary_until_another_follows() {
        type Frame = fn(&str) -> Vec<u8>;
        let plain = |document: &str| document.as_bytes().to_vec();
        let form: [(Shape, &str, Frame, &[&str], bool); 9] = [
            (Shape::Anthropic, EVENTS, event, &[BEGIN], true),
            (Shape::Anthropic, EVENTS, event, &[BEGIN, DELTA], false),
            // Its OpenAI-compatible path reports once, at the end.
            (Shape::Anthropic, EVENTS, event, &[COMPLETION], false),
            (Shape::Anthropic, JSON, plain, &[BEGIN], false),
            (Shape::Bedrock, MESSAGES, wrapped, &[BEGIN], true),
            (Shape::Bedrock, MESSAGES, wrapped, &[BEGIN, DELTA], false),
            (Shape::Bedrock, MESSAGES, wrapped, &[BEGIN, METRICS], false),
            (Shape::Bedrock, MESSAGES, bare, &[CONVERSED], false),
            (Shape::OpenAi, EVENTS, event, &[COMPLETION], false),
        ];
        for (shape, content_type, framed, documents, is_preliminary) in form {
            for extent in [Extent::Whole, Extent::Partial] {
                let mut findings = Findings::new(shape, content_type);
                for document in documents {
                    findings.feed(&framed(document), 100);
                }
                let report = findings.report(extent);
                assert_eq!(report.is_preliminary, is_preliminary, "{content_type} {documents:?}");
                assert_eq!(report.is_partly_read, extent == Extent::Partial, "{documents:?}");
                // What it reported counts, however far it was read.
                assert!(matches!(report.reported, ReportedUsage::Usage(_)), "{report:?}");
            }
        }
    }
}
