//! Responses on a managed provider key that cannot be read for their usage. None of them is free.

use farthing_tests::books::Books;
use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{Endpoint, chunk, event_stream, head, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

use farthing_tests::codings::{MAX_DECODED, MIB, br, filler, gzip, zlib, zstd};
use farthing_tests::managed::Managed;

/// A long response with its usage at the end, as a large batch of embeddings is.
fn long() -> Vec<u8> {
    let filler = filler(MAX_DECODED + MIB);
    format!(r#"{{"data":"{filler}","usage":{{"prompt_tokens":300000,"total_tokens":300000}}}}"#).into_bytes()
}

/// An endpoint that answers with this body. Each line of `coding` is a `Content-Encoding` header of its own.
fn answering(managed: &Managed, coding: &'static str, body: Vec<u8>) -> Endpoint {
    managed.openai.endpoint_ending("/v1/embeddings", move |_| {
        let mut headers = vec![("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")];
        headers.extend(coding.split('\n').map(|line| ("Content-Encoding", line)));
        vec![head(200, &headers), chunk(&body), last_chunk()]
    })
}

fn ask(endpoint: &Endpoint) -> Request {
    // As many inputs as it takes to use 300,000 tokens.
    let asked = json!({"model": "text-embedding-3-large", "input": ["x", "y", "z", "x"]});
    forward("POST", &endpoint.url).header("Accept-Encoding", "gzip, br, zstd").json(&asked)
}

/// The opening and the charge of a call.
async fn events(merchant: &Merchant, response: &Response) -> (Value, Value) {
    let opened = merchant.log.event(&format!("{}/opened", response.request_id())).await.unwrap();
    (opened.body, merchant.charged(response).await)
}

#[test]
fn a_managed_call_whose_response_cannot_be_read_is_charged_its_hold() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let meter = |payer: &'static str| {
            merchant.meter(json!({
                "name": payer, "rate_type": "fixed", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}],
                "base_cost_payer": payer, "service_charge_payer": "merchant",
            }))
        };
        let (on_wallet, on_merchant) = (meter("wallet").await, meter("merchant").await);
        let long = long();
        let short = br#"{"usage":{"prompt_tokens":300000}}"#;
        // The usage is not in the first half.
        let text = format!(r#"{{"data":"{}","usage":{{"prompt_tokens":300000}}}}"#, filler(MIB));
        let half = |body: Vec<u8>| body[..body.len() / 2].to_vec();
        let zeros = format!(r#"{{"data":"{}","usage":{{"prompt_tokens":300000}}}}"#, "0".repeat(8 * MIB));
        for (coding, body) in [
            ("gzip", gzip(&long)),
            ("deflate", zlib(&long)),
            ("br", br(&long)),
            ("zstd", zstd(&long)),
            ("gzip", half(gzip(text.as_bytes()))),
            ("deflate", half(zlib(text.as_bytes()))),
            ("br", half(br(text.as_bytes()))),
            ("zstd", half(zstd(text.as_bytes()))),
            ("gzip", gzip(zeros.as_bytes())),
            ("br", br(zeros.as_bytes())),
            ("zstd", zstd(zeros.as_bytes())),
            ("gzip, br", br(&gzip(short))),
            ("gzip\nbr", br(&gzip(short))),
            ("\nunheard-of", short.to_vec()),
            ("identity\nunheard-of", gzip(short)),
            ("gzip\u{ff}", gzip(short)),
            ("unheard-of", short.to_vec()),
            ("gzip", short.to_vec()),
            // No JSON.
            ("identity", b"tokens,300000\n".to_vec()),
            ("identity", [&[0x0a, 0x04][..], b"\x08\x80\x93\x12"].concat()),
            ("gzip", gzip(b"usage: 300000\n")),
        ] {
            let endpoint = answering(&managed, coding, body.clone());
            for (credential, payer) in [
                (merchant.secret_key.clone(), "merchant"),
                (token(&json!({"secret_key": merchant.secret_key, "customer_id": customer.id})), "wallet"),
                (merchant.billing(&customer, &on_wallet), "wallet"),
                (merchant.billing(&customer, &on_merchant), "merchant"),
            ] {
                let response = managed.send(&credential, ask(&endpoint)).await;
                assert_eq!((response.status, response.complete), (200, true), "{coding}");
                assert!(response.body == body, "{coding}: the response passes as it came");
                let (opened, metered) = events(&merchant, &response).await;
                assert_eq!(metered["marks"], json!(["usage_missing", "hold_charged"]), "{coding}");
                let total = format!("total_{payer}_cost");
                assert_eq!(metered[&total], opened["hold"][payer], "{coding}: {metered}");
                assert_ne!(metered["model_cost"]["total"], "0.0000000000", "{coding}: {metered}");
                let shown = merchant.shown(&response.request_id(), "completed").await;
                assert_eq!(shown["marks"], json!(["usage_missing", "hold_charged"]));
                assert_eq!(shown["model_usage"]["total_tokens"], 0, "no usage is made up");
                let call = endpoint.calls().pop().unwrap();
                assert_eq!(call.head.all("accept-encoding"), ["identity"]);
            }
        }
        merchant.nothing_is_held().await;
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn what_can_be_read_and_what_is_not_the_instances_to_pay_is_charged_as_before() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let usage = br#"{"usage":{"prompt_tokens":300000,"total_tokens":300000}}"#;
        let readable = answering(&managed, "gzip", gzip(usage));
        let response = managed.send(&merchant.secret_key, ask(&readable)).await;
        let (_, metered) = events(&merchant, &response).await;
        assert_eq!((&metered["marks"], &metered["total_request_cost"]), (&json!([]), &json!("0.0390000000")));
        // A response without a coding is read however long it is.
        let plain = answering(&managed, "identity", long());
        let response = managed.send(&merchant.secret_key, ask(&plain)).await;
        let (_, metered) = events(&merchant, &response).await;
        assert_eq!((&metered["marks"], &metered["total_request_cost"]), (&json!([]), &json!("0.0390000000")));
        // What is named beside the one coding changes nothing.
        for coding in ["identity\ngzip", "\ngzip", "identity, gzip", "GZIP\nidentity"] {
            let readable = answering(&managed, coding, gzip(usage));
            let response = managed.send(&merchant.secret_key, ask(&readable)).await;
            let (_, metered) = events(&merchant, &response).await;
            let charged = (&metered["marks"], &metered["total_request_cost"]);
            assert_eq!(charged, (&json!([]), &json!("0.0390000000")), "{coding}");
        }
        // Nothing was reported: nothing is estimated.
        let silent = answering(&managed, "br", br(b"{}"));
        let response = managed.send(&merchant.secret_key, ask(&silent)).await;
        let (_, metered) = events(&merchant, &response).await;
        assert_eq!(metered["marks"], json!(["usage_missing"]));
        assert_eq!(metered["total_request_cost"], "0.0000000000");
        // A stream that ends without an event, such as of a provider that gave up.
        let silent = managed.openai.endpoint_ending("/v1/chat/completions", |_| {
            vec![event_stream(), chunk(": keep-alive\n\n"), last_chunk()]
        });
        let asked = json!({"model": "gpt-4o", "stream": true, "max_tokens": 5, "messages": []});
        let response = managed.send(&merchant.secret_key, forward("POST", &silent.url).json(&asked)).await;
        let (_, metered) = events(&merchant, &response).await;
        assert_eq!(metered["marks"], json!(["usage_missing"]));
        assert_eq!(metered["total_request_cost"], "0.0000000000");
        // The caller's own key: its owner pays the provider.
        let unreadable = answering(&managed, "unheard-of", usage.to_vec());
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let response = managed.send(&own, ask(&unreadable)).await;
        let (_, metered) = events(&merchant, &response).await;
        assert_eq!(metered["marks"], json!(["usage_missing"]));
        assert_eq!(metered["total_request_cost"], "0.0000000000");
        assert_eq!(unreadable.only_call().head.all("accept-encoding"), ["gzip, br, zstd"]);
    });
}
