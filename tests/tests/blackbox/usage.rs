//! Charges follow the provider's report: the standard usage object, OpenAI's, streams, compression, and reports that are
//! rejected (interface.md item 7; completion.md section 5).

use std::io::Write as _;

use farthing_tests::merchant::{Customer, Merchant, Meter, forward};
use farthing_tests::provider::{Endpoint, Step, chunk, event_stream, json_text, last_chunk, whole};
use farthing_tests::run;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::{Value, json};

struct Shop {
    merchant: Merchant,
    customer: Customer,
    meter: Meter,
}

/// A customer with money on a meter at 1 per million tokens.
async fn shop() -> Shop {
    let merchant = Merchant::funded("1000").await;
    let customer = merchant.customer("1000").await;
    let meter = merchant
        .meter(json!({
            "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
            "tiers": [{"start": 0, "rate": "1"}], "service_charge_payer": "merchant",
        }))
        .await;
    Shop { merchant, customer, meter }
}

impl Shop {
    async fn call(&self, endpoint: &Endpoint) -> farthing_tests::client::Response {
        self.merchant.call(&self.merchant.billing(&self.customer, &self.meter), &endpoint.url).await
    }

    fn other(&self, body: &str) -> Endpoint {
        let body = body.to_owned();
        self.merchant.instance.provider.endpoint(move |_| json_text(200, &body))
    }

    fn openai(&self, body: &str) -> Endpoint {
        let body = body.to_owned();
        self.merchant.instance.openai.endpoint(move |_| json_text(200, &body))
    }

    /// The metered input and output tokens of a response.
    async fn tokens(&self, endpoint: &Endpoint) -> (u64, u64) {
        let response = self.call(endpoint).await;
        assert_eq!(response.status, 200);
        let metered = self.merchant.charged(&response).await;
        let tokens = &metered["usage"]["tokens"];
        assert_eq!(metered["marks"], json!([]), "{metered}");
        (tokens["input"].as_u64().unwrap(), tokens["output"].as_u64().unwrap())
    }
}

#[test]
fn the_standard_usage_object_is_read_in_all_its_parts() {
    run(async {
        let shop = shop().await;
        for (usage, tokens, characters, seconds) in [
            (r#"{"tokens":12}"#, (12, 0), 0, "0"),
            (r#"{"input_tokens":3,"output_tokens":4}"#, (3, 4), 0, "0"),
            (r#"{"tokens":100,"input_tokens":3,"output_tokens":4}"#, (3, 4), 0, "0"),
            (r#"{"input_tokens":3}"#, (3, 0), 0, "0"),
            (r#"{"output_tokens":4}"#, (0, 4), 0, "0"),
            (r#"{"characters":77}"#, (0, 0), 77, "0"),
            (r#"{"duration_seconds":1.25}"#, (0, 0), 0, "1.25"),
            (r#"{"tokens":1,"characters":2,"duration_seconds":3,"unknown":"x"}"#, (1, 0), 2, "3"),
            (r#"{"tokens":0}"#, (0, 0), 0, "0"),
            (r#"{"tokens":null,"characters":5}"#, (0, 0), 5, "0"),
            (r#"{"tokens":1000000000000}"#, (1_000_000_000_000, 0), 0, "0"),
        ] {
            let endpoint =
                shop.other(&format!(r#"{{"a":[{{"usage":{{"tokens":9}}}}],"usage":{usage},"z":1}}"#));
            let response = shop.call(&endpoint).await;
            assert_eq!(response.status, 200);
            let metered = shop.merchant.charged(&response).await;
            let read = &metered["usage"];
            let pair =
                (read["tokens"]["input"].as_u64().unwrap(), read["tokens"]["output"].as_u64().unwrap());
            assert_eq!(pair, tokens, "{usage}");
            assert_eq!(read["characters"]["input"], characters, "{usage}");
            assert_eq!(read["seconds"]["input"], seconds, "{usage}");
            assert_eq!(
                metered["marks"].as_array().unwrap().iter().filter(|mark| *mark == "usage_missing").count(),
                0
            );
        }
    });
}

#[test]
fn openais_format_is_read_only_for_hosts_configured_as_openai() {
    run(async {
        let shop = shop().await;
        let chat = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"gpt-4o-x",
            "choices":[{"message":{"content":"{\"usage\":{\"prompt_tokens\":999}}"}}],
            "usage":{"prompt_tokens":11,"completion_tokens":22,"total_tokens":33,
                "prompt_tokens_details":{"cached_tokens":5}}}"#;
        let endpoint = shop.openai(chat);
        let response = shop.call(&endpoint).await;
        let metered = shop.merchant.charged(&response).await;
        assert_eq!(metered["usage"]["tokens"], json!({"input": 11, "output": 22}));
        assert_eq!(metered["response_id"], "chatcmpl-1");
        assert_eq!(metered["model"], "gpt-4o-x");
        let shown = shop.merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["provider"], "openai");
        assert_eq!(shown["model_usage"]["total_tokens"], 33);
        assert_eq!(shown["fee"]["amount"], "0.0000330000");
        assert!(shown["timestamp"].as_str().unwrap().starts_with("2026-09-21T"), "{shown}");

        let responses = r#"{"id":"resp_1","created_at":1790000000,"model":"m","output":[],
            "usage":{"input_tokens":7,"output_tokens":8,"total_tokens":15}}"#;
        assert_eq!(shop.tokens(&shop.openai(responses)).await, (7, 8));

        let response = shop.call(&shop.other(chat)).await;
        let metered = shop.merchant.charged(&response).await;
        assert_eq!(metered["usage"]["tokens"], json!({"input": 0, "output": 0}), "no standard usage");
    });
}

#[test]
fn the_last_report_of_a_stream_counts() {
    run(async {
        let shop = shop().await;
        let events = [
            "data: {\"id\":\"c1\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n",
            ": ping\n\n",
            "data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\r\n\r\n",
            "data: [DONE]\n\n",
        ];
        let whole_stream: String = events.concat();
        // The usage is the same for any split of the bytes.
        for size in [1, 2, 7, 64, 4096] {
            let stream = whole_stream.clone();
            let endpoint = shop.merchant.instance.openai.endpoint(move |_| {
                let mut steps = vec![event_stream()];
                steps.extend(stream.as_bytes().chunks(size).map(chunk));
                steps.push(last_chunk());
                steps
            });
            let response = shop.call(&endpoint).await;
            assert!(response.complete);
            assert_eq!(response.text(), whole_stream);
            let metered = shop.merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], json!({"input": 5, "output": 6}), "cut by {size}");
            assert_eq!(metered["response_id"], "c1");
        }
        let lines = "{\"token\":\"a\"}\n{\"usage\":{\"tokens\":1}}\n{\"usage\":{\"tokens\":9}}\n";
        let endpoint = shop
            .merchant
            .instance
            .provider
            .endpoint(move |_| whole(200, &[("Content-Type", "application/x-ndjson")], lines.as_bytes()));
        assert_eq!(shop.tokens(&endpoint).await, (9, 0));
    });
}

#[test]
fn a_compressed_response_passes_unchanged_and_its_usage_is_read() {
    run(async {
        let shop = shop().await;
        let body = json!({"padding": "x".repeat(100_000), "usage": {"tokens": 42}}).to_string();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(body.as_bytes()).unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(body.as_bytes()).unwrap();
        for (coding, bytes) in [("gzip", gzip.finish().unwrap()), ("deflate", zlib.finish().unwrap())] {
            let sent = bytes.clone();
            let endpoint = shop.merchant.instance.provider.endpoint(move |_| {
                whole(200, &[("Content-Type", "application/json"), ("Content-Encoding", coding)], &sent)
            });
            let response = shop.call(&endpoint).await;
            assert_eq!(response.body, bytes);
            assert_eq!(response.head.header("content-encoding"), Some(coding));
            assert_eq!(shop.merchant.charged(&response).await["usage"]["tokens"]["input"], 42, "{coding}");
        }
    });
}

#[test]
fn a_wrong_content_encoding_is_not_a_gateway_error() {
    run(async {
        let shop = shop().await;
        for coding in ["gzip", "deflate", "br", "zstd", "gzip, br", "x-unknown"] {
            let endpoint = shop.merchant.instance.provider.endpoint(move |_| {
                whole(
                    200,
                    &[("Content-Type", "application/json"), ("Content-Encoding", coding)],
                    b"{\"usage\":{}}",
                )
            });
            let response = shop.call(&endpoint).await;
            assert_eq!((response.status, response.text().as_str()), (200, "{\"usage\":{}}"), "{coding}");
            let metered = shop.merchant.charged(&response).await;
            assert_eq!(metered["total_request_cost"], "0.0000000000");
        }
    });
}

#[test]
fn rejected_usage_ends_as_an_error_costs_nothing_and_is_recorded() {
    run(async {
        let shop = shop().await;
        for usage in [
            r#"{"tokens":-1}"#,
            r#"{"tokens":1.5}"#,
            r#"{"tokens":"12"}"#,
            r#"{"tokens":1e13}"#,
            r#"{"tokens":1000000000001}"#,
            r#"{"tokens":99999999999999999999999999999999999999999999}"#,
            r#"{"tokens":1e400}"#,
            r#"{"tokens":true}"#,
            r#"{"tokens":[1]}"#,
            r#"{"tokens":{}}"#,
            r#"{"input_tokens":3,"output_tokens":-4}"#,
            r#"{"characters":-5}"#,
            r#"{"characters":0.1}"#,
            r#"{"duration_seconds":-0.5}"#,
            r#"{"duration_seconds":"NaN"}"#,
            r#"{"duration_seconds":1e13}"#,
            r#""many""#,
            "[1,2]",
            "12",
            "true",
        ] {
            let body = format!(r#"{{"id":"answer-1","usage":{usage}}}"#);
            let endpoint = shop.other(&body);
            let response = shop.call(&endpoint).await;
            assert_eq!((response.status, response.text()), (200, body), "the response passes unchanged");
            let failed = shop.merchant.failed(&response).await;
            assert_eq!(failed["reason"], "usage_invalid", "{usage}");
            assert_eq!(failed["raw_usage"], usage);
            assert_eq!(failed["response_id"], "answer-1");
        }
        let nan = shop.other(r#"{"usage":{"tokens":NaN}}"#);
        let response = shop.call(&nan).await;
        assert_eq!(response.status, 200);
        assert!(shop.merchant.metered(&response).await.is_none_or(|metered| metered["units"] == "0"));
        assert_eq!(shop.merchant.balance(&shop.customer).await, "1000.0000000000");
        shop.merchant.nothing_is_held().await;
    });
}

#[test]
fn plausible_counts_with_an_absurd_cost_are_not_charged() {
    run(async {
        let shop = shop().await;
        let meter = shop
            .merchant
            .meter(json!({
                "name": "dear", "rate_type": "fixed", "tier_type": "minutes", "tiers": [{"start": 0, "rate": "1000000"}],
            }))
            .await;
        let endpoint = shop.other(r#"{"usage":{"duration_seconds":999999999999}}"#);
        let response =
            shop.merchant.call(&shop.merchant.billing(&shop.customer, &meter), &endpoint.url).await;
        assert_eq!(response.status, 200);
        assert_eq!(shop.merchant.failed(&response).await["reason"], "usage_invalid");
        shop.merchant.nothing_is_held().await;
    });
}

#[test]
fn a_response_without_usage_is_marked_and_costs_only_its_call_fee() {
    run(async {
        let shop = shop().await;
        let per_call = shop.merchant.call_meter("0.25").await;
        for body in [
            "{}",
            "",
            "null",
            "[]",
            "not json",
            r#"{"usage":null}"#,
            r#"{"data":{"usage":{"tokens":5}}}"#,
            // The status says that it is no error.
            r#"{"error":{"message":"overloaded","code":529}}"#,
        ] {
            let endpoint = shop.other(body);
            let response = shop.call(&endpoint).await;
            assert_eq!((response.status, response.text().as_str()), (200, body));
            let metered = shop.merchant.charged(&response).await;
            assert_eq!(metered["marks"], json!(["usage_missing"]), "{body}");
            assert_eq!(metered["total_request_cost"], "0.0000000000");
            let response =
                shop.merchant.call(&shop.merchant.billing(&shop.customer, &per_call), &endpoint.url).await;
            let metered = shop.merchant.charged(&response).await;
            assert_eq!(metered["fee"]["amount"], "0.2500000000", "{body}");
            assert_eq!(metered["total_wallet_cost"], "0.2500000000");
        }
    });
}

#[test]
fn unusual_characters_in_a_response_are_handled() {
    run(async {
        let shop = shop().await;
        let long = "l".repeat(100_000);
        let mut ids = Vec::new();
        for body in [
            r#"{"id":"a\u0000b","model":"m\u0000","usage":{"tokens":1}}"#.to_owned(),
            r#"{"id":"\ud800","model":"\udfff","usage":{"tokens":1}}"#.to_owned(),
            r#"{"id":"\ud83d\ude00 \u202e","model":"é\u0301","usage":{"tokens":1}}"#.to_owned(),
            r#"{"id":7,"model":["x"],"created":"soon","usage":{"tokens":1}}"#.to_owned(),
            r#"{"id":"","model":"","created":99999999999999999,"usage":{"tokens":1}}"#.to_owned(),
            format!(r#"{{"id":"{long}","model":"{long}","usage":{{"tokens":1}}}}"#),
            format!(r#"{{"id":"'; DROP TABLE x; --","{long}":1,"usage":{{"tokens":1}}}}"#),
        ] {
            let response = shop.call(&shop.other(&body)).await;
            assert_eq!(response.status, 200);
            let metered = shop.merchant.charged(&response).await;
            assert_eq!(metered["units"], "1", "{body:.60}");
            ids.push(response.request_id());
        }
        let not_text = b"{\"id\":\"\xff\xfe\0\",\"usage\":{\"tokens\":1}}";
        let endpoint = shop
            .merchant
            .instance
            .provider
            .endpoint(|_| whole(200, &[("Content-Type", "application/json")], not_text));
        let response = shop.call(&endpoint).await;
        assert_eq!((response.status, response.body.as_slice()), (200, not_text.as_slice()));
        ids.push(response.request_id());
        for id in ids {
            shop.merchant.shown(&id, "completed").await;
        }
        let invalid = shop.other(r#"{"id":"x\u0000","usage":{"tokens":"\u0000"}}"#);
        let response = shop.call(&invalid).await;
        shop.merchant.failed(&response).await;
        shop.merchant.shown(&response.request_id(), "error").await;
    });
}

#[test]
fn deep_and_endless_documents_are_read_with_bounded_effort() {
    run(async {
        let shop = shop().await;
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let response = shop.call(&shop.other(&format!(r#"{{"deep":{deep},"usage":{{"tokens":2}}}}"#))).await;
        assert_eq!(shop.merchant.charged(&response).await["units"], "2");
        let wide: Value =
            (0..50_000).map(|n| (format!("k{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
        let response = shop.call(&shop.other(&format!(r#"{{"wide":{wide},"usage":{{"tokens":3}}}}"#))).await;
        assert_eq!(shop.merchant.charged(&response).await["units"], "3");
        let huge_usage = format!(r#"{{"usage":{{"pad":"{}","tokens":4}}}}"#, "p".repeat(1_000_000));
        let response = shop.call(&shop.other(&huge_usage)).await;
        assert_eq!(response.status, 200);
    });
}

#[test]
fn calls_to_other_providers_are_not_changed() {
    run(async {
        let shop = shop().await;
        let endpoint = shop
            .merchant
            .instance
            .provider
            .endpoint(|call| vec![event_stream(), chunk(&call.body), Step::Bytes(b"0\r\n\r\n".to_vec())]);
        let body = r#"{"model": "m",  "stream":true, "stream_options":null}"#;
        let request = forward("POST", &endpoint.url)
            .header("Content-Type", "application/json")
            .body(farthing_tests::client::Body::Whole(body.as_bytes().to_vec()));
        let response = shop.merchant.send(&shop.merchant.billing(&shop.customer, &shop.meter), request).await;
        assert_eq!(response.text(), body);
    });
}
