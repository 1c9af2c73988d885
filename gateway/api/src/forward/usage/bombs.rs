//! Compressed answers that would cost a gateway much more than their sender: they are decoded in short turns, as far as
//! what came over the wire allows, and take no more memory than their merchant's share.

use std::fmt::Write as _;

use bytes::Bytes;
use farthing_core::usage::{Split, Usage};
use tokio_util::task::TaskTracker;

use super::decoders::DecoderMemory;
use super::scanner::tests::{CODINGS, compressed, decoders, read, reading, scanner, share};
use super::{Decoders, ReportedUsage};

const MIB: usize = 1 << 20;

/// A brotli stream of a window of 16 MiB that announces 16 MiB, and gives five bytes.
const STALLED_BROTLI: &[u8] = b"\xcf\xff\xff\xff{\"a\":";

/// A zstd frame of a window of 8 MiB that gives five bytes.
const STALLED_ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x00\x68\x28\x00\x00{\"a\":";

#[tokio::test]
async fn a_text_that_is_compressed_a_hundredfold_is_read() {
    let zeros = "0".repeat(600);
    let mut text = String::from(r#"{"data":""#);
    for number in 0..20_000_u64 {
        write!(text, "{:016x}{zeros}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
    }
    text.push_str(r#"","usage":{"prompt_tokens":7}}"#);
    for coding in CODINGS {
        let body = compressed(coding, text.as_bytes());
        let ratio = text.len() / body.len();
        assert!((20..100).contains(&ratio), "{coding}: {ratio}");
        let report = reading(coding, &body, 64 * 1024).await.report;
        assert!(matches!(report.reported, ReportedUsage::Usage(_)), "{coding}, {ratio}: {report:?}");
    }
}

#[tokio::test]
async fn a_stream_with_a_usage_in_each_chunk_is_read() {
    let mut text = String::new();
    for number in 0..30_000_u64 {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let usage = format!(r#"{{"prompt_tokens":3,"completion_tokens":{number}}}"#);
        write!(text, r#"data: {{"id":"c","model":"m","choices":["{word}"],"usage":{usage}}}"#).unwrap();
        text.push_str("\n\n");
    }
    for coding in CODINGS {
        let body = compressed(coding, text.as_bytes());
        let mut scanner = scanner(&decoders(), coding, "text/event-stream");
        read(&mut scanner, &body).await;
        let report = scanner.finish(&TaskTracker::new()).await.report;
        let ReportedUsage::Usage(usage) = report.reported else { panic!("{coding}: {report:?}") };
        assert_eq!(usage.tokens.output, 29_999, "{coding}");
    }
}

#[tokio::test]
async fn a_bomb_is_not_read_beyond_what_came_over_the_wire() {
    let reported = Usage { tokens: Split { input: 1, output: 0 }, ..Usage::default() };
    for (unit, expected) in [
        (" ", ReportedUsage::Unread),
        (r#"{"id":"x","model":"y"}"#, ReportedUsage::Unread),
        (r#"{"usage":1}"#, ReportedUsage::Invalid),
        (r#"{"usage":{"prompt_tokens":1}}"#, ReportedUsage::Usage(reported)),
    ] {
        let mut text = unit.repeat(8 * MIB / unit.len());
        text.push_str(r#"{"usage":{"prompt_tokens":5}}"#);
        for coding in CODINGS {
            let body = compressed(coding, text.as_bytes());
            assert!(body.len() < MIB / 14, "{coding}: {} bytes", body.len());
            for piece in [1_000, usize::MAX] {
                let report = reading(coding, &body, piece).await.report;
                assert_eq!(report.reported, expected, "{coding}, {unit:?}, {piece}");
            }
        }
    }
}

#[tokio::test]
async fn an_uncompressed_answer_is_read_to_its_end_however_much_it_reports() {
    let text = r#"{"usage":{"prompt_tokens":1}}"#.repeat(50_000) + r#"{"usage":{"prompt_tokens":5}}"#;
    let report = reading("", &Bytes::from(text), 64 * 1024).await.report;
    let ReportedUsage::Usage(usage) = report.reported else { panic!("{report:?}") };
    assert_eq!(usage.tokens.input, 5);
}

#[tokio::test]
async fn stalled_answers_take_their_merchants_share_of_memory_and_no_more() {
    for (coding, begin, each) in [("br", STALLED_BROTLI, 17 * MIB), ("zstd", STALLED_ZSTD, MIB)] {
        let decoders = Decoders::start(DecoderMemory { gateway: 100 * MIB, merchant: 40 * MIB }).unwrap();
        let mut stalled = Vec::new();
        for _ in 0..200 {
            let mut scanner = scanner(&decoders, coding, "application/json");
            read(&mut scanner, &Bytes::from_static(begin)).await;
            stalled.push(scanner);
        }
        let taken = decoders.taken();
        assert!((40 * MIB - each..=40 * MIB).contains(&taken), "{coding}: {taken}");
        // Another merchant's answers are read meanwhile.
        let share = share(&decoders, 2);
        assert!(share.take(18 * MIB).is_some(), "{coding}");
        // Those that were not decoded are unread; the others were cut off.
        for scanner in stalled {
            let report = scanner.finish(&TaskTracker::new()).await.report;
            assert_eq!(report.reported, ReportedUsage::Unread, "{coding}");
        }
        assert_eq!(decoders.taken(), 0, "{coding}: everything is given back");
    }
}

#[tokio::test]
async fn small_answers_take_little_memory() {
    for coding in CODINGS {
        let decoders = decoders();
        let body = compressed(coding, &br#"{"choices":[{"delta":{"content":"hello"}}]}"#.repeat(100));
        let mut scanner = scanner(&decoders, coding, "application/json");
        read(&mut scanner, &body.slice(..body.len() - 1)).await;
        assert!((1..MIB).contains(&decoders.taken()), "{coding}: {}", decoders.taken());
    }
}
