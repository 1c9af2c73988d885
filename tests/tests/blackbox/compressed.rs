//! Compressed responses: each coding passes byte for byte, its usage is read, and decoding is bounded.

use farthing_tests::client::Response;
use farthing_tests::codings::{
    MAX_DECODED, MIB, br, deflate, filler, gzip, zlib, zstd, zstd_of_a_wide_window,
};
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{Step, chunk, head, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

struct Answered {
    response: Response,
    metered: Value,
}

impl Answered {
    fn tokens(&self) -> u64 {
        self.metered["usage"]["tokens"]["input"].as_u64().unwrap()
    }
}

/// Makes a call whose response is `body` in pieces of this size, and asserts that it arrives unchanged.
async fn answered(
    merchant: &Merchant,
    media_type: &'static str,
    coding: &'static str,
    body: &[u8],
    piece: usize,
) -> Answered {
    let sent = body.to_vec();
    let endpoint = merchant.instance.provider.endpoint(move |_| {
        let headers =
            [("Content-Type", media_type), ("Content-Encoding", coding), ("Transfer-Encoding", "chunked")];
        let mut steps: Vec<Step> = vec![head(200, &headers)];
        steps.extend(sent.chunks(piece).map(chunk));
        steps.push(last_chunk());
        steps
    });
    let response = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
    assert_eq!((response.status, response.complete), (200, true), "{coding}");
    assert!(response.body == body, "{coding}: the body was changed on its way");
    assert_eq!(response.head.header("content-encoding"), Some(coding));
    let metered = merchant.charged(&response).await;
    Answered { response, metered }
}

#[test]
fn every_coding_passes_unchanged_and_its_usage_is_read() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let text = json!({"padding": "x".repeat(50_000), "usage": {"tokens": 42}}).to_string();
        let (first, second) = text.as_bytes().split_at(text.len() / 2);
        for (coding, body) in [
            ("br", br(text.as_bytes())),
            ("zstd", zstd(text.as_bytes())),
            ("gzip", gzip(text.as_bytes())),
            ("x-gzip", gzip(text.as_bytes())),
            ("deflate", zlib(text.as_bytes())),
            ("deflate", deflate(text.as_bytes())),
            // One body in two members (or frames), with the usage in the second.
            ("gzip", [gzip(first), gzip(second)].concat()),
            ("zstd", [zstd(first), zstd(second)].concat()),
        ] {
            for piece in [7, 4096] {
                let answered = answered(&merchant, "application/json", coding, &body, piece).await;
                assert_eq!(answered.tokens(), 42, "{coding} in pieces of {piece}");
                assert_eq!(answered.metered["marks"], json!([]), "{coding}");
            }
        }
    });
}

#[test]
fn a_compressed_event_stream_is_read_to_its_end() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let events =
            "data: {\"usage\":{\"tokens\":1}}\n\ndata: {\"usage\":{\"tokens\":5}}\n\ndata: [DONE]\n\n";
        for (coding, body) in [("br", br(events.as_bytes())), ("zstd", zstd(events.as_bytes()))] {
            let answered = answered(&merchant, "text/event-stream", coding, &body, 3).await;
            assert_eq!(answered.tokens(), 5, "{coding}");
        }
    });
}

#[test]
fn an_undecodable_body_passes_unchanged_counts_nothing_and_is_marked() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let text = json!({"usage": {"tokens": 42}}).to_string();
        let wide = [text.as_bytes(), " ".repeat(9 * MIB).as_bytes()].concat();
        for (coding, body) in [
            ("gzip, br", br(&gzip(text.as_bytes()))),
            ("unheard-of", text.clone().into_bytes()),
            ("zstd", zstd_of_a_wide_window(&wide)),
            ("br", b"\x91\x22large windows are not the web's".to_vec()),
        ] {
            let answered = answered(&merchant, "application/json", coding, &body, 1000).await;
            assert_eq!(answered.tokens(), 0, "{coding}");
            assert_eq!(answered.metered["marks"], json!(["usage_missing"]), "{coding}");
        }
    });
}

#[test]
fn a_body_is_decoded_up_to_a_limit() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let packed = |length: usize| {
            let text = [br#"{"a":""#, filler(length).as_bytes(), br#"","usage":{"tokens":42}}"#].concat();
            [("gzip", gzip(&text)), ("deflate", zlib(&text)), ("br", br(&text)), ("zstd", zstd(&text))]
        };
        for (coding, bomb) in packed(MAX_DECODED + MIB) {
            assert!(bomb.len() * 100 > MAX_DECODED, "{coding}: its length alone is too much");
            let answered = answered(&merchant, "application/json", coding, &bomb, 64 * 1024).await;
            assert_eq!(answered.tokens(), 0, "{coding}");
            assert_eq!(answered.metered["marks"], json!(["usage_missing"]), "{coding}");
            assert!(answered.response.request_id().starts_with("req_"));
        }
        for (coding, large) in packed(MAX_DECODED - MIB) {
            let answered = answered(&merchant, "application/json", coding, &large, 64 * 1024).await;
            assert_eq!(answered.tokens(), 42, "{coding}");
        }
        merchant.nothing_is_held().await;
    });
}
