//! Reads the usage in a provider's answer. A plain answer is scanned as it passes. A compressed one is decoded in a
//! task of its own, in short turns that merchants share; what is decoded is bounded by what came over the wire.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use farthing_core::ids::RequestId;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::task::TaskTracker;

use super::decoders::{CallShare, Length};
use super::decoding::{Coding, Decode, Wire};
use super::findings::{Extent, Findings};
use super::{ReportedUsage, Shape, UsageReport};

/// Decoded bytes after which reading stops.
const MAX_DECODED: u64 = 64 * 1024 * 1024;

/// Decoded bytes after which reading stops, unless more came over the wire: as many, and [`MAX_RATIO`] for each byte.
const MIN_DECODED: u64 = 256 * 1024;

/// The most that a longer body may be compressed. Text is rarely compressed more than tenfold.
const MAX_RATIO: u64 = 100;

/// The members of a compressed answer after which reading stops, unless more bytes than that came over the wire.
const MIN_MEMBERS: u64 = 10_000;

/// Decoded bytes that are scanned at once.
const BUFFER: usize = 8 * 1024;

/// The most that is decoded in one turn.
#[derive(Debug, Clone, Copy)]
struct TurnSize {
    wire: usize,
    decoded: usize,
}

/// The decoded bytes of a short answer. What follows is decoded on a thread of its own.
const SHORT: u64 = 64 * 1024;

/// A turn on a thread that serves calls.
const SHORT_TURN: TurnSize = TurnSize { wire: 1024, decoded: 16 * 1024 };

/// A turn on a thread for long answers.
const LONG_TURN: TurnSize = TurnSize { wire: 16 * 1024, decoded: 256 * 1024 };

/// What was read of an answer.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The facts that it reports.
    pub(crate) report: UsageReport,
    /// Whether it ends within a document of JSON. Of one that cannot be read on, nothing is known.
    pub(crate) is_within_document: bool,
}

impl Reading {
    fn of(findings: Findings, extent: Extent, is_followed: bool) -> Self {
        let is_within_document = is_followed && findings.is_within_document();
        Self { report: findings.report(extent), is_within_document }
    }

    /// Of an answer of which nothing can be read.
    fn nothing() -> Self {
        let reported = ReportedUsage::Unread;
        let report = UsageReport {
            reported,
            is_preliminary: false,
            is_partly_read: true,
            raw_usage: None,
            response_id: None,
            model: None,
            timestamp: None,
            streamed_text: 0,
        };
        Self { report, is_within_document: false }
    }
}

/// Scans an answer for its usage.
pub(crate) struct Scanner(Stage);

enum Stage {
    /// The answer is not compressed.
    Plain(Box<Findings>),
    /// Everything so far is decoded.
    Waiting(Box<Decoding>),
    /// These bytes are to be decoded.
    Fed(Box<Decoding>, Bytes),
    /// They are being decoded, for this call.
    Decoding(JoinHandle<Box<Decoding>>, RequestId),
    /// The answer cannot be read.
    Unreadable,
}

impl Scanner {
    /// A scanner for an answer with these headers from a provider that reports in `shape`. It also counts the text of the
    /// answer, if that may be charged. A compressed answer takes from its merchant's share.
    pub(crate) fn new(
        shape: Shape,
        headers: &HeaderMap,
        counts_text: bool,
        take: impl FnOnce() -> CallShare,
    ) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut findings = Findings::new(shape, text(CONTENT_TYPE));
        findings.read_headers(headers);
        if counts_text {
            findings.count_text();
        }
        let coding = Coding::of_response(headers);
        Self(match coding {
            Coding::Identity => Stage::Plain(Box::new(findings)),
            Coding::Unknown => Stage::Unreadable,
            Coding::Gzip | Coding::Deflate | Coding::Brotli | Coding::Zstd => {
                Stage::Waiting(Box::new(Decoding::new(coding, findings, take())))
            }
        })
    }

    /// Takes the next bytes of the answer, as they came over the wire. Call it only when [`Self::poll_ready`] is.
    pub(crate) fn feed(&mut self, bytes: &Bytes) {
        self.0 = match std::mem::replace(&mut self.0, Stage::Unreadable) {
            Stage::Plain(mut findings) => {
                findings.feed(bytes, u64::MAX);
                Stage::Plain(findings)
            }
            Stage::Waiting(decoding) if decoding.has_failed() || bytes.is_empty() => Stage::Waiting(decoding),
            Stage::Waiting(decoding) => Stage::Fed(decoding, bytes.clone()),
            Stage::Unreadable => Stage::Unreadable,
            Stage::Fed(..) | Stage::Decoding(..) => panic!("an answer is read in order"),
        };
    }

    /// Ready once all bytes so far are read.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>, tasks: &TaskTracker) -> Poll<()> {
        if matches!(self.0, Stage::Fed(..))
            && let Stage::Fed(decoding, bytes) = std::mem::replace(&mut self.0, Stage::Unreadable)
        {
            let request_id = decoding.share.request_id;
            self.0 = Stage::Decoding(tasks.spawn(decoding.read(bytes)), request_id);
        }
        if let Stage::Decoding(task, request_id) = &mut self.0 {
            let decoded = ready!(Pin::new(task).poll(cx));
            self.0 = decoded.map_or_else(|error| unreadable(error, *request_id), Stage::Waiting);
        }
        Poll::Ready(())
    }

    /// What was read, after the answer's last byte.
    pub(crate) async fn finish(self, tasks: &TaskTracker) -> Reading {
        let (task, request_id) = match self.0 {
            Stage::Plain(findings) => return Reading::of(*findings, Extent::Whole, true),
            Stage::Unreadable => return Reading::nothing(),
            Stage::Waiting(decoding) => {
                let request_id = decoding.share.request_id;
                (tasks.spawn(decoding.finish()), request_id)
            }
            Stage::Fed(decoding, bytes) => {
                let request_id = decoding.share.request_id;
                (tasks.spawn(async move { decoding.read(bytes).await.finish().await }), request_id)
            }
            Stage::Decoding(task, request_id) => match task.await {
                Ok(decoding) => (tasks.spawn(decoding.finish()), request_id),
                Err(error) => {
                    unreadable(error, request_id);
                    return Reading::nothing();
                }
            },
        };
        match task.await {
            Ok(decoding) => decoding.reading(),
            Err(error) => {
                unreadable(error, request_id);
                Reading::nothing()
            }
        }
    }
}

/// The stage after a decoder that has panicked.
#[expect(clippy::needless_pass_by_value, reason = "it is the end of the task")]
fn unreadable(error: JoinError, request_id: RequestId) -> Stage {
    tracing::error!(event = "forward.decoder_failed", %request_id, %error, "the decoder of an answer has failed");
    Stage::Unreadable
}

/// How far a compressed answer is decoded.
enum Progress {
    /// Nothing has come.
    Nothing,
    /// The decoder goes on.
    Going(Box<dyn Decode>),
    /// The compressed stream has ended.
    Ended,
    /// The body has ended, and the compressed stream has not.
    CutOff,
    /// Nothing more is decoded.
    Failed,
}

/// A compressed answer.
struct Decoding {
    coding: Coding,
    findings: Findings,
    progress: Progress,
    share: CallShare,
    /// Bytes that came over the wire.
    wire: u64,
    decoded: u64,
}

/// Whether a turn leaves something to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Some,
    None,
}

impl Decoding {
    fn new(coding: Coding, findings: Findings, share: CallShare) -> Self {
        Self { coding, findings, progress: Progress::Nothing, share, wire: 0, decoded: 0 }
    }

    fn has_failed(&self) -> bool {
        matches!(self.progress, Progress::Failed)
    }

    /// Decodes and scans these bytes.
    async fn read(mut self: Box<Self>, bytes: Bytes) -> Box<Self> {
        self.push(bytes);
        self.in_turns().await
    }

    /// Decodes and scans what is left, after the last byte.
    async fn finish(mut self: Box<Self>) -> Box<Self> {
        if let Progress::Going(decoder) = &mut self.progress {
            decoder.wire().end();
        }
        self.in_turns().await
    }

    fn push(&mut self, bytes: Bytes) {
        self.wire += bytes.len() as u64;
        match &mut self.progress {
            Progress::Nothing => {
                let mut wire = Wire::default();
                wire.push(bytes);
                match self.coding.decoder(wire, &self.share) {
                    Ok(Some(decoder)) => self.progress = Progress::Going(decoder),
                    Ok(None) => self.progress = Progress::Failed,
                    Err(error) => self.fail(&error),
                }
            }
            Progress::Going(decoder) => decoder.wire().push(bytes),
            Progress::Ended | Progress::CutOff => self.fail(&io::Error::other("bytes follow its end")),
            Progress::Failed => {}
        }
    }

    async fn in_turns(mut self: Box<Self>) -> Box<Self> {
        let share = Arc::clone(&self.share.merchant);
        while matches!(self.progress, Progress::Going(_)) {
            // Brotli fills its window, of up to 16 MiB, before it gives any of it.
            let is_long = self.coding == Coding::Brotli || self.decoded >= SHORT;
            let turn = share.turn(if is_long { Length::Long } else { Length::Short }).await;
            let rest = if is_long {
                let on_its_own = share.threads().run(move || (self.turn(LONG_TURN), self)).await;
                let rest;
                (rest, self) = on_its_own.expect("a decoder does not panic");
                rest
            } else {
                self.turn(SHORT_TURN)
            };
            drop(turn);
            if rest == Rest::None {
                break;
            }
            tokio::task::yield_now().await;
        }
        self
    }

    /// Decodes and scans as much as fits into one turn.
    fn turn(&mut self, size: TurnSize) -> Rest {
        let Progress::Going(decoder) = &mut self.progress else { return Rest::None };
        decoder.wire().allow(size.wire);
        let mut buffer = [0; BUFFER];
        let until = self.decoded + size.decoded as u64;
        while self.decoded < until {
            let count = match decoder.read(&mut buffer) {
                Ok(0) if decoder.wire().is_empty() => {
                    self.progress = Progress::Ended;
                    return Rest::None;
                }
                Ok(0) => {
                    self.fail(&io::Error::other("bytes follow its end"));
                    return Rest::None;
                }
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return if decoder.wire().is_empty() { Rest::None } else { Rest::Some };
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.progress = Progress::CutOff;
                    return Rest::None;
                }
                Err(error) => {
                    self.fail(&error);
                    return Rest::None;
                }
            };
            self.decoded += count as u64;
            if self.decoded > MAX_DECODED.min(MIN_DECODED + self.wire.saturating_mul(MAX_RATIO)) {
                self.fail(&io::Error::other("it is too long for what came over the wire"));
                return Rest::None;
            }
            self.findings.feed(&buffer[..count], MIN_MEMBERS.max(self.wire));
            if self.findings.are_final() {
                self.progress = Progress::Failed;
                return Rest::None;
            }
        }
        Rest::Some
    }

    fn fail(&mut self, error: &io::Error) {
        let request_id = self.share.request_id;
        tracing::debug!(
            event = "forward.decoding_failed",
            %request_id,
            %error,
            "a compressed answer cannot be decoded further"
        );
        self.progress = Progress::Failed;
    }

    fn reading(self) -> Reading {
        let (extent, is_followed) = match self.progress {
            Progress::Nothing | Progress::Ended => (Extent::Whole, true),
            Progress::Going(_) | Progress::CutOff => (Extent::Partial, true),
            Progress::Failed => (Extent::Partial, false),
        };
        Reading::of(self.findings, extent, is_followed)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::future::poll_fn;
    use std::io::Write;

    use farthing_core::ids::MerchantId;
    use farthing_core::usage::{Split, Usage};
    use flate2::Compression;
    use http::HeaderValue;
    use http::header::CONTENT_ENCODING;

    use super::super::{DecoderMemory, Decoders};
    use super::*;

    const ANSWER: &str = r#"{"id":"chatcmpl-1","created":1700000000,"model":"m","usage":{"prompt_tokens":3,"completion_tokens":4}}"#;

    pub(crate) const CODINGS: [&str; 5] = ["gzip", "deflate", "raw deflate", "br", "zstd"];

    pub(crate) fn compressed(coding: &str, text: &[u8]) -> Bytes {
        let level = Compression::fast();
        let bytes = match coding {
            "" => text.to_vec(),
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "deflate" => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "raw deflate" => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "br" => {
                let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 24);
                encoder.write_all(text).unwrap();
                encoder.into_inner()
            }
            "zstd" => zstd::stream::encode_all(text, 3).unwrap(),
            other => panic!("{other}"),
        };
        bytes.into()
    }

    pub(crate) fn decoders() -> Decoders {
        Decoders::start(DecoderMemory { gateway: 100 << 20, merchant: 50 << 20 }).unwrap()
    }

    pub(crate) fn merchant(number: u128) -> MerchantId {
        MerchantId::new(ulid::Ulid::from_parts(1, number))
    }

    /// The share of a merchant, for a call.
    pub(crate) fn share(decoders: &Decoders, number: u128) -> CallShare {
        decoders.share(merchant(number)).of_call(RequestId::new(ulid::Ulid::nil()))
    }

    pub(crate) fn scanner(decoders: &Decoders, coding: &str, media_type: &'static str) -> Scanner {
        let mut headers = HeaderMap::new();
        let coding = coding.strip_prefix("raw ").unwrap_or(coding);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        Scanner::new(Shape::OpenAi, &headers, false, || share(decoders, 1))
    }

    /// Reads these bytes as far as they can be read.
    pub(crate) async fn read(scanner: &mut Scanner, bytes: &Bytes) {
        scanner.feed(bytes);
        poll_fn(|cx| scanner.poll_ready(cx, &TaskTracker::new())).await;
    }

    /// Reads an answer in pieces of this size. The last piece is read at its end.
    pub(crate) async fn reading(coding: &str, body: &Bytes, piece: usize) -> Reading {
        let mut scanner = scanner(&decoders(), coding, "application/json");
        for start in (0..body.len()).step_by(piece) {
            let tasks = TaskTracker::new();
            poll_fn(|cx| scanner.poll_ready(cx, &tasks)).await;
            scanner.feed(&body.slice(start..body.len().min(start.saturating_add(piece))));
        }
        scanner.finish(&TaskTracker::new()).await
    }

    async fn reported(coding: &str, body: &Bytes) -> ReportedUsage {
        reading(coding, body, usize::MAX).await.report.reported
    }

    fn tokens(input: u64, output: u64) -> ReportedUsage {
        ReportedUsage::Usage(Usage { tokens: Split { input, output }, ..Usage::default() })
    }

    #[tokio::test]
    async fn a_compressed_answer_is_read_as_it_passes() {
        for coding in ["gzip", "deflate", "raw deflate", "br", "zstd", ""] {
            let body = compressed(coding, ANSWER.as_bytes());
            for piece in [1, 10, 10_000] {
                let Reading { report, is_within_document } = reading(coding, &body, piece).await;
                assert_eq!(report.reported, tokens(3, 4), "{coding:?} in pieces of {piece}");
                assert_eq!(report.response_id.as_deref(), Some("chatcmpl-1"));
                assert_eq!(report.model.as_deref(), Some("m"));
                assert_eq!(report.timestamp.unwrap().timestamp(), 1_700_000_000);
                assert!(!is_within_document);
            }
            assert_eq!(reported(coding, &Bytes::new()).await, ReportedUsage::Nothing, "{coding:?}");
        }
        let gzip = compressed("gzip", ANSWER.as_bytes());
        assert_eq!(reported("br", &gzip).await, ReportedUsage::Unread);
        assert_eq!(reported("unheard-of", &gzip).await, ReportedUsage::Unread);
        assert_eq!(reported("gzip, br", &gzip).await, ReportedUsage::Unread);
    }

    #[tokio::test]
    async fn an_answer_whose_compressed_data_is_cut_off_is_not_one_without_usage() {
        for coding in CODINGS {
            let silent = compressed(coding, br#"{"nothing":"is reported"}"#);
            let telling = compressed(coding, ANSWER.as_bytes());
            for length in 1..silent.len() {
                assert_eq!(
                    reported(coding, &silent.slice(..length)).await,
                    ReportedUsage::Unread,
                    "{coding}, {length} of {}",
                    silent.len()
                );
            }
            for length in 1..telling.len() {
                let cut = reported(coding, &telling.slice(..length)).await;
                assert!(cut == ReportedUsage::Unread || cut == tokens(3, 4), "{coding}, {length}: {cut:?}");
            }
            assert_eq!(reported(coding, &silent).await, ReportedUsage::Nothing, "{coding}");
            let followed = Bytes::from([&silent[..], b"x"].concat());
            assert_eq!(reported(coding, &followed).await, ReportedUsage::Unread, "{coding}");
        }
    }

    #[tokio::test]
    async fn an_answer_ends_within_a_document_if_what_was_decoded_does() {
        for coding in CODINGS {
            let whole = compressed(coding, br#"{"usage":"#);
            assert!(reading(coding, &whole, 3).await.is_within_document, "{coding}");
            let cut = whole.slice(..whole.len() - 1);
            let Reading { report, .. } = reading(coding, &cut, 3).await;
            assert_eq!(report.reported, ReportedUsage::Unread, "{coding}");
            // Of one that cannot be read on, nothing is known.
            let broken = Bytes::from([&whole[..], &[0xff; 64]].concat());
            let Reading { report, is_within_document } = reading(coding, &broken, 3).await;
            assert_eq!((report.reported, is_within_document), (ReportedUsage::Unread, false), "{coding}");
        }
    }

    #[tokio::test]
    async fn texts_of_a_provider_are_made_fit_to_be_stored() {
        let body = Bytes::from(r#"{"id":"a\u0000b","model":7,"usage":{"prompt_tokens":-1,"x":"\u0000"}}"#);
        let report = reading("", &body, 9).await.report;
        assert_eq!(report.response_id.as_deref(), Some("a\u{fffd}b"));
        assert_eq!(report.model, None);
        assert_eq!(report.reported, ReportedUsage::Invalid);
        assert_eq!(report.raw_usage.as_deref(), Some(r#"{"prompt_tokens":-1,"x":"\u0000"}"#));
    }

    #[tokio::test]
    async fn an_invalid_usage_decides_whatever_follows() {
        let body = b"{\"usage\":1}\n{\"usage\":{\"prompt_tokens\":5}}\n{\"usage\":2}\n";
        for coding in ["", "gzip", "br", "zstd"] {
            let report = reading(coding, &compressed(coding, body), 9).await.report;
            assert_eq!(report.reported, ReportedUsage::Invalid, "{coding:?}");
            assert_eq!(report.raw_usage.as_deref(), Some("1"), "{coding:?}");
        }
    }

    #[tokio::test]
    async fn a_turn_decodes_no_more_than_its_size() {
        let text = " ".repeat(8 << 20);
        for coding in CODINGS {
            for size in [SHORT_TURN, LONG_TURN] {
                let coded = Coding::of(coding.strip_prefix("raw ").unwrap_or(coding));
                let findings = Findings::new(Shape::OpenAi, "application/json");
                let mut decoding = Decoding::new(coded, findings, share(&decoders(), 1));
                let body = compressed(coding, text.as_bytes());
                decoding.push(body.clone());
                let (mut turns, mut before) = (0, 0);
                while decoding.turn(size) == Rest::Some {
                    assert!(decoding.decoded - before <= (size.decoded + BUFFER) as u64, "{coding}");
                    before = decoding.decoded;
                    turns += 1;
                }
                assert!(decoding.has_failed() && turns > 0, "{coding}");
                let allowed = MIN_DECODED + body.len() as u64 * MAX_RATIO + BUFFER as u64;
                assert!(decoding.decoded <= allowed, "{coding}: {} of {}", decoding.decoded, body.len());
            }
        }
        // Bytes that give nothing count as well: empty members of gzip.
        let empty = Bytes::from(compressed("gzip", b"").repeat(1_000));
        let findings = Findings::new(Shape::OpenAi, "application/json");
        let mut decoding = Decoding::new(Coding::Gzip, findings, share(&decoders(), 1));
        decoding.push(empty.clone());
        let turns = std::iter::from_fn(|| (decoding.turn(SHORT_TURN) == Rest::Some).then_some(())).count();
        assert_eq!(turns, (empty.len() - 1) / SHORT_TURN.wire);
    }
}
