//! Reads the usage that a provider reports while its answer passes. Invariant: reading does not delay, change or store
//! the answer (only `chunk.rs` removes a chunk that the caller did not request), and no usage is estimated.

mod chunk;
mod decoding;
mod document;
mod framing;
#[cfg(test)]
mod fuzz;
mod provider_text;
mod request;
mod shape;
mod unpriced;

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Datelike as _, Utc};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

pub(crate) use self::chunk::ChunkFilter;
use self::decoding::Coding;
use self::document::Member;
use self::framing::Framing;
use self::provider_text::{clean, string};
pub(crate) use self::request::{read_request, requesting_usage};
use self::shape::TokenCounts;
pub(crate) use self::shape::{ReportedUsage, Shape};
pub(crate) use self::unpriced::unpriced_member;

/// The longest raw usage that is stored, in characters.
const MAX_RAW: usize = 4096;

/// The facts that a provider's answer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsageReport {
    pub(crate) reported: ReportedUsage,
    /// The text of the last `usage`.
    pub(crate) raw_usage: Option<String>,
    pub(crate) response_id: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) timestamp: Option<DateTime<Utc>>,
}

/// Scans an answer for its usage as it passes.
pub(crate) struct Scanner {
    findings: Arc<Mutex<Findings>>,
    decoder: Option<Box<dyn Write + Send>>,
    readable: bool,
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner").field("findings", &self.findings).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Findings {
    shape: Shape,
    framing: Framing,
    counts: TokenCounts,
    raw_usage: Option<String>,
    response_id: Option<String>,
    model: Option<String>,
    timestamp: Option<DateTime<Utc>>,
}

impl Scanner {
    /// A scanner for an answer with these headers from a provider that reports in `shape`.
    pub(crate) fn new(shape: Shape, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let findings = Arc::new(Mutex::new(Findings {
            shape,
            framing: Framing::of(text(CONTENT_TYPE), shape.selection()),
            counts: TokenCounts::default(),
            raw_usage: None,
            response_id: None,
            model: None,
            timestamp: None,
        }));
        let coding = Coding::of(text(CONTENT_ENCODING));
        let seen = Arc::clone(&findings);
        let decoder = coding.decoder(move |bytes: &[u8]| lock(&seen).feed(bytes));
        let readable = decoder.is_some() || coding == Coding::Identity;
        Self { findings, decoder, readable }
    }

    /// Reads the next bytes of the answer, as they came from the wire.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if !self.readable {
            return;
        }
        match &mut self.decoder {
            None => lock(&self.findings).feed(bytes),
            // Flushing makes the decoder return every complete block now, not only at the end.
            Some(decoder) => {
                let read = decoder.write_all(bytes).and_then(|()| decoder.flush());
                if let Err(error) = read {
                    tracing::debug!(event = "forward.decoding_failed", %error, "a compressed answer cannot be decoded further");
                    self.readable = false;
                }
            }
        }
    }

    /// Whether the answer so far ends within a document. Of one that cannot be read on, nothing is known.
    pub(crate) fn is_within_document(&self) -> bool {
        self.readable && lock(&self.findings).framing.is_within_document()
    }

    /// The facts reported so far.
    pub(crate) fn report(&self) -> UsageReport {
        let findings = lock(&self.findings);
        let reported = match findings.counts.reported(findings.shape) {
            ReportedUsage::Nothing if !self.readable => ReportedUsage::Unread,
            reported => reported,
        };
        UsageReport {
            reported,
            raw_usage: findings.raw_usage.clone(),
            response_id: findings.response_id.clone(),
            model: findings.model.clone(),
            timestamp: findings.timestamp,
        }
    }
}

fn lock(findings: &Mutex<Findings>) -> MutexGuard<'_, Findings> {
    findings.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Findings {
    fn feed(&mut self, bytes: &[u8]) {
        let Self { shape, framing, counts, raw_usage, response_id, model, timestamp } = self;
        framing.feed(bytes, |member, text| match member {
            // The first invalid one decides: whoever repeats it a million times causes no further work.
            Member::Usage | Member::UsageMetadata if counts.is_invalid() => {}
            Member::Usage | Member::UsageMetadata => {
                counts.report(*shape, member, text);
                if text != "null" {
                    *raw_usage = Some(clean(text, MAX_RAW));
                }
            }
            Member::Id => replace(response_id, string(text)),
            Member::Model => replace(model, string(text)),
            Member::Created => replace(timestamp, instant(text)),
        });
    }
}

fn replace<T>(known: &mut Option<T>, found: Option<T>) {
    if found.is_some() {
        *known = found;
    }
}

/// Seconds since 1970, or an ISO 8601 text.
fn instant(json: &str) -> Option<DateTime<Utc>> {
    let at = if let Ok(seconds) = json.parse::<i64>() {
        DateTime::from_timestamp(seconds, 0)?
    } else {
        let text: String = serde_json::from_str(json).ok()?;
        DateTime::parse_from_rfc3339(&text).ok()?.with_timezone(&Utc)
    };
    (1970..=9999).contains(&at.year()).then(|| farthing_core::command::to_millisecond(at))
}

#[cfg(test)]
mod tests {
    use farthing_core::usage::{Split, Usage};
    use http::HeaderValue;

    use super::*;

    const ANSWER: &str = r#"{"id":"chatcmpl-1","created":1700000000,"model":"m","usage":{"prompt_tokens":3,"completion_tokens":4}}"#;

    fn scan(body: &[u8], encoding: &'static str, chunk: usize) -> UsageReport {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut scanner = Scanner::new(Shape::OpenAi, &headers);
        for part in body.chunks(chunk) {
            scanner.feed(part);
        }
        scanner.report()
    }

    #[test]
    fn a_compressed_answer_is_read_as_it_passes() {
        let gzip = {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(ANSWER.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let zlib = {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(ANSWER.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let raw = {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(ANSWER.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let brotli = {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
            encoder.write_all(ANSWER.as_bytes()).unwrap();
            encoder.into_inner()
        };
        let zstd = zstd::stream::encode_all(ANSWER.as_bytes(), 3).unwrap();
        let bodies: [(&[u8], &str); 6] = [
            (ANSWER.as_bytes(), ""),
            (&gzip, "gzip"),
            (&zlib, "deflate"),
            (&raw, "deflate"),
            (&brotli, "br"),
            (&zstd, "zstd"),
        ];
        for (body, encoding) in bodies {
            for chunk in [1, 10, 10_000] {
                let report = scan(body, encoding, chunk);
                let usage = Usage { tokens: Split { input: 3, output: 4 }, ..Usage::default() };
                assert_eq!(report.reported, ReportedUsage::Usage(usage), "{encoding:?} in chunks of {chunk}");
                assert_eq!(report.response_id.as_deref(), Some("chatcmpl-1"));
                assert_eq!(report.model.as_deref(), Some("m"));
                assert_eq!(report.timestamp.unwrap().timestamp(), 1_700_000_000);
            }
        }
        assert_eq!(scan(&gzip, "br", 5).reported, ReportedUsage::Unread);
        assert_eq!(scan(&gzip[..20], "gzip", 5).reported, ReportedUsage::Nothing);
        assert_eq!(scan(&gzip, "unheard-of", 5).reported, ReportedUsage::Unread);
    }

    #[test]
    fn texts_of_a_provider_are_made_fit_to_be_stored() {
        let body = r#"{"id":"a\u0000b","model":7,"usage":{"prompt_tokens":-1,"x":"\u0000"}}"#;
        let report = scan(body.as_bytes(), "", 9);
        assert_eq!(report.response_id.as_deref(), Some("a\u{fffd}b"));
        assert_eq!(report.model, None);
        assert_eq!(report.reported, ReportedUsage::Invalid);
        assert_eq!(report.raw_usage.as_deref(), Some(r#"{"prompt_tokens":-1,"x":"\u0000"}"#));
    }

    #[test]
    fn an_answer_that_cannot_be_read_on_ends_within_no_document() {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(br#"{"usage":"#).unwrap();
        encoder.flush().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("deflate"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut scanner = Scanner::new(Shape::OpenAi, &headers);
        scanner.feed(encoder.get_ref());
        assert!(scanner.is_within_document());
        scanner.feed(&[0xff; 64]);
        assert!(!scanner.is_within_document());
        assert_eq!(scanner.report().reported, ReportedUsage::Unread);
    }

    #[test]
    fn an_invalid_usage_decides_whatever_follows() {
        let body = r#"{"usage":1}
{"usage":{"prompt_tokens":5}}
{"usage":2}
"#;
        let report = scan(body.as_bytes(), "", 9);
        assert_eq!(report.reported, ReportedUsage::Invalid);
        assert_eq!(report.raw_usage.as_deref(), Some("1"));
    }
}
