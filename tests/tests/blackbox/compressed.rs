//! Compressed responses: each coding passes byte for byte, its usage is read, and decoding is bounded.

use std::io::Write as _;

use farthing_tests::client::Response;
use farthing_tests::codings::{
    MAX_DECODED, MIB, br, deflate, filler, gzip, zlib, zstd, zstd_of_a_wide_window,
};
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{Endpoint, Step, chunk, head, last_chunk};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
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

/// What comes of `text` in this coding before its sender breaks off. All of it can be decoded, and is not the end.
fn flushed(coding: &str, text: &[u8]) -> Vec<u8> {
    match coding {
        "identity" => text.to_vec(),
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.flush().unwrap();
            encoder.get_ref().clone()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.flush().unwrap();
            encoder.get_ref().clone()
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 22);
            encoder.write_all(text).unwrap();
            encoder.flush().unwrap();
            encoder.get_ref().clone()
        }
        "zstd" => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.write_all(text).unwrap();
            encoder.flush().unwrap();
            encoder.get_ref().clone()
        }
        other => panic!("{other}"),
    }
}

/// Where the stream of a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The provider closes the connection.
    BrokenOff,
    /// The response is complete, and the compressed data in it are not.
    CutOff,
}

/// A message of Anthropic's in this coding, of which all but the last usage comes.
fn begun_message(managed: &Managed, coding: &'static str, ends: Ends) -> Endpoint {
    managed.anthropic.endpoint_ending("/v1/messages", move |_| {
        let events = [
            r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":900,"output_tokens":1}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#,
        ];
        let events = events.map(|event| format!("data: {event}\n\n")).concat();
        let headers = [
            ("Content-Type", "text/event-stream"),
            ("Content-Encoding", coding),
            ("Transfer-Encoding", "chunked"),
        ];
        let end = match ends {
            Ends::BrokenOff => Step::Close,
            Ends::CutOff => last_chunk(),
        };
        vec![head(200, &headers), chunk(flushed(coding, events.as_bytes())), end]
    })
}

#[test]
fn a_compressed_stream_that_does_not_come_to_its_end_is_charged_what_it_had_reported() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
                "tiers": [{"start": 0, "rate": "1000"}], "service_charge_payer": "merchant",
            }))
            .await;
        let own = token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "provider_key": "sk-theirs",
        }));
        let asked = json!({"model": "claude-sonnet-4-6", "stream": true, "max_tokens": 500, "messages": []});
        let metered = async |credential: &str, coding: &'static str, ends: Ends| {
            let endpoint = begun_message(&managed, coding, ends);
            let response = managed.send(credential, forward("POST", &endpoint.url).json(&asked)).await;
            assert_eq!((response.status, response.complete), (200, ends == Ends::CutOff), "{coding}");
            let metered = eventually("the call is settled", async || merchant.metered(&response).await).await;
            assert_eq!(metered["usage"]["tokens"], json!({"input": 900, "output": 1}), "{coding}: {metered}");
            metered
        };
        for credential in [own.as_str(), merchant.secret_key.as_str()] {
            let plain = metered(credential, "identity", Ends::BrokenOff).await;
            assert_eq!(plain["marks"], json!(["partial"]), "{plain}");
            assert_ne!(plain["total_request_cost"], "0.0000000000", "{plain}");
            for coding in ["gzip", "deflate", "br", "zstd"] {
                let broken_off = metered(credential, coding, Ends::BrokenOff).await;
                for field in ["marks", "model_cost", "fee", "total_request_cost", "total_wallet_cost"] {
                    assert_eq!(broken_off[field], plain[field], "{coding}: {field} of {broken_off}");
                }
                // What the answer used may stand in what was not sent. On a managed key the instance pays for it.
                let cut_off = metered(credential, coding, Ends::CutOff).await;
                if credential == own {
                    assert_eq!(cut_off["marks"], json!(["partial"]), "{coding}: {cut_off}");
                    assert_eq!(cut_off["fee"], plain["fee"], "{coding}: {cut_off}");
                } else {
                    assert_eq!(cut_off["marks"], json!(["hold_charged", "partial"]), "{coding}: {cut_off}");
                    assert_eq!(cut_off["total_merchant_cost"], cut_off["hold"]["merchant"], "{coding}");
                }
            }
        }
        merchant.nothing_is_held().await;
    });
}
