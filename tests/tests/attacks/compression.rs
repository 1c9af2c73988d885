//! Compressed responses of a caller's own server that cost a gateway much more than their sender. They pass unaltered, end
//! by the stated rules, and keep no other merchant's call waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, head, last_chunk, whole};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

use farthing_tests::codings::{MIB, br, gzip, zlib, zstd};

/// A brotli stream of a window of 16 MiB that announces 16 MiB, and gives five bytes.
const STALLED_BROTLI: &[u8] = b"\xcf\xff\xff\xff{\"a\":";

fn repeated(unit: &str) -> Vec<u8> {
    unit.repeat(60 * MIB / unit.len()).into_bytes()
}

fn answering(merchant: &Merchant, coding: &'static str, body: Vec<u8>, until: Option<Gate>) -> Endpoint {
    merchant.instance.provider.endpoint(move |_| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Content-Encoding", coding),
            ("Transfer-Encoding", "chunked"),
        ];
        let mut steps = vec![head(200, &headers), chunk(&body)];
        steps.extend(until.clone().map(Step::Wait));
        steps.push(last_chunk());
        steps
    })
}

#[test]
fn a_bomb_passes_unaltered_and_ends_by_the_stated_rules() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let texts = [
            (repeated(" "), Ok(0)),
            (repeated(r#"{"id":"x"}"#), Ok(0)),
            (repeated(r#"{"usage":{"tokens":3}}"#), Ok(3)),
            (repeated(r#"{"usage":1}"#), Err("usage_invalid")),
        ];
        for (text, expected) in texts {
            for (coding, bomb) in
                [("br", br(&text)), ("gzip", gzip(&text)), ("deflate", zlib(&text)), ("zstd", zstd(&text))]
            {
                assert!(bomb.len() < MIB, "{coding}: a bomb is small");
                let endpoint = answering(&merchant, coding, bomb.clone(), None);
                let response = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
                assert_eq!((response.status, response.complete), (200, true), "{coding}");
                assert!(response.body == bomb, "{coding}: the body was changed on its way");
                match expected {
                    Err(reason) => {
                        assert_eq!(merchant.failed(&response).await["reason"], reason, "{coding}");
                    }
                    Ok(tokens) => {
                        let metered = merchant.charged(&response).await;
                        assert_eq!(metered["usage"]["tokens"]["input"], tokens, "{coding}");
                        let marks = if tokens == 0 { json!(["usage_missing"]) } else { json!([]) };
                        assert_eq!(metered["marks"], marks, "{coding}");
                    }
                }
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn another_merchants_calls_are_charged_while_bombs_are_decoded() {
    run(async {
        let (attacker, victim) = (Merchant::funded("1").await, Merchant::funded("1").await);
        let text = repeated(r#"{"id":"x"}"#);
        let bombs = [("br", br(&text)), ("gzip", gzip(&text)), ("zstd", zstd(&text))];
        let endpoints: Arc<Vec<_>> = Arc::new(
            bombs.into_iter().map(|(coding, bomb)| answering(&attacker, coding, bomb, None)).collect(),
        );
        let attacker = Arc::new(attacker);
        let has_ended = Arc::new(AtomicBool::new(false));
        let attacks: Vec<_> = (0..30)
            .map(|number| {
                let (attacker, endpoints) = (Arc::clone(&attacker), Arc::clone(&endpoints));
                let has_ended = Arc::clone(&has_ended);
                tokio::spawn(async move {
                    let mut count = 0_u32;
                    while !has_ended.load(Ordering::SeqCst) {
                        let endpoint = &endpoints[number % endpoints.len()];
                        let response = attacker.fetch(&attacker.secret_key, &endpoint.url).await;
                        assert_eq!((response.status, response.complete), (200, true));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let usage = json!({"usage": {"tokens": 42}}).to_string();
        let plain = victim.instance.provider.endpoint({
            let usage = usage.clone();
            move |_| whole(200, &[("Content-Type", "application/json")], usage.as_bytes())
        });
        let packed = answering(&victim, "br", br(usage.as_bytes()), None);
        for _ in 0..20 {
            for endpoint in [&plain, &packed] {
                let response = victim.fetch(&victim.secret_key, &endpoint.url).await;
                assert_eq!((response.status, response.complete), (200, true));
                let metered = victim.charged(&response).await;
                assert_eq!(metered["usage"]["tokens"]["input"], 42, "{metered}");
            }
        }
        has_ended.store(true, Ordering::SeqCst);
        for attack in attacks {
            assert!(attack.await.unwrap() > 0);
        }
        victim.nothing_is_held().await;
    });
}

/// Merchants that together may have more memory of decoders than a gateway has, which is at most 256 MiB.
const MERCHANTS_THAT_STALL: usize = 5;

#[test]
fn responses_that_stall_take_no_decoder_from_another_merchant() {
    run(async {
        let victim = Merchant::funded("1").await;
        let gate = Gate::default();
        let endpoint = answering(&victim, "br", STALLED_BROTLI.to_vec(), Some(gate.clone()));
        let mut stalled = Vec::new();
        for _ in 0..MERCHANTS_THAT_STALL {
            let attacker = Arc::new(Merchant::funded("1").await);
            for _ in 0..40 {
                let (attacker, url) = (Arc::clone(&attacker), endpoint.url.clone());
                stalled.push(tokio::spawn(async move {
                    let response = attacker.fetch(&attacker.secret_key, &url).await;
                    (attacker, response)
                }));
            }
        }
        eventually("all calls have come", async || {
            assert!(
                !stalled.iter().any(tokio::task::JoinHandle::is_finished),
                "a call ended before its gate"
            );
            (endpoint.calls().len() == stalled.len()).then_some(())
        })
        .await;
        let text = json!({"usage": {"tokens": 42}}).to_string();
        for (coding, body) in [
            ("br", br(text.as_bytes())),
            ("gzip", gzip(text.as_bytes())),
            ("deflate", zlib(text.as_bytes())),
            ("zstd", zstd(text.as_bytes())),
        ] {
            let endpoint = answering(&victim, coding, body, None);
            let response = victim.fetch(&victim.secret_key, &endpoint.url).await;
            let metered = victim.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"]["input"], 42, "{coding}");
        }
        gate.open();
        for stalled in stalled {
            let (attacker, response) = stalled.await.unwrap();
            assert_eq!((response.status, response.complete), (200, true));
            assert_eq!(response.body, STALLED_BROTLI, "what is not decoded passes");
            let metered: Value = attacker.charged(&response).await;
            assert_eq!(metered["marks"], json!(["usage_missing"]));
        }
    });
}
