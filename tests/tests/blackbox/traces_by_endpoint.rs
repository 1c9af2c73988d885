//! Traces of the model endpoints and of rewrite: the spans of a forwarded call, under the name of the endpoint, whole or
//! streamed, converted or not. Neither the provider's URL in the path of a rewrite nor a body is in them.

use std::collections::BTreeSet;

use farthing_tests::client::Request;
use farthing_tests::collector::Collector;
use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::{Call, Provider, Step, chunk, event_stream, json_text, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

use super::traces::{CALLERS_KEY, STAGES, named, send, trace_id, traced, traceparent, tree};

const CHAT: &str = "/v1/chat/completions";

const COMPLETION: &str = r#"{"id":"c-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a private answer"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#;

/// A completion, as a stream if the body asks for one.
fn answer(call: &Call) -> Vec<Step> {
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    if body["stream"] != json!(true) {
        return json_text(200, COMPLETION);
    }
    let events = [
        r#"{"id":"c-1","model":"m","choices":[{"index":0,"delta":{"content":"a private answer"}}]}"#,
        r#"{"id":"c-1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"id":"c-1","model":"m","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#,
        "[DONE]",
    ];
    let events = events.into_iter().map(|data| chunk(format!("data: {data}\n\n")));
    std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
}

#[test]
fn each_endpoint_has_the_spans_of_a_forwarded_call_and_shows_no_url_of_a_provider() {
    run(async {
        let (collector, provider) = (Collector::start().await, Provider::start().await);
        let host = format!("--provider-host=deepseek={}", provider.authority());
        let gateway = traced(collector.url(), &[&host]).await;
        let merchant = Merchant::funded("10").await;
        let key = token(&json!({"secret_key": merchant.secret_key, "provider_key": CALLERS_KEY}));
        let by_model = provider.endpoint_at(CHAT, answer);
        let by_url = provider.endpoint_ending(CHAT, answer);
        let messages = json!([{"role": "user", "content": "a private thought"}]);
        let chat = json!({"model": "deepseek/m", "max_tokens": 9, "messages": messages});
        let rewritten = json!({"model": "m", "max_tokens": 9, "messages": messages});
        let responses = json!({"model": "deepseek/m", "max_output_tokens": 9, "input": "a private thought"});
        let rewrite = format!("/v1/rewrite/anthropic/{}/v1/messages", by_url.url);
        let mut seen = 0;
        for (path, route, body) in [
            (CHAT, CHAT, &chat),
            ("/v1/messages", "/v1/messages", &chat),
            ("/v1/responses", "/v1/responses", &responses),
            (rewrite.as_str(), "/v1/rewrite", &rewritten),
        ] {
            for is_stream in [false, true] {
                let mut body = body.clone();
                body["stream"] = json!(is_stream);
                let request = Request::new("POST", path).json(&body).bearer(&key);
                let request = request.header("traceparent", traceparent(&trace_id(&merchant)));
                let response = send(request, &gateway).await;
                assert_eq!((response.status, response.complete), (200, true), "{route}: {}", response.text());
                assert!(response.text().contains("a private answer"), "{route}: {}", response.text());
                let all = collector.trace_of(&response.request_id()).await;
                // All calls are in the caller's trace. The span of the call comes last.
                let call =
                    all.iter().find(|span| span.get("farthing.request_id") == Some(&response.request_id()));
                let call = call.unwrap();
                let children: BTreeSet<&str> = all
                    .iter()
                    .filter(|span| span.parent == call.span_id)
                    .map(|span| span.span_id.as_str())
                    .collect();
                let is_of_call = |id: &str, parent: &str| {
                    id == call.span_id || children.contains(id) || children.contains(parent)
                };
                let spans: Vec<_> =
                    all.iter().filter(|span| is_of_call(&span.span_id, &span.parent)).cloned().collect();
                let name = format!("POST {route}");
                let renamed = |text| if text == "POST /v1/forward" { name.as_str() } else { text };
                let stages: BTreeSet<_> =
                    STAGES.iter().map(|(stage, parent)| (renamed(stage), renamed(parent))).collect();
                assert_eq!(tree(&spans), stages, "{route} {is_stream}: {spans:?}");
                assert_eq!(spans.len(), STAGES.len(), "{route} {is_stream}");
                for (attribute, value) in [
                    ("http.route", route),
                    ("url.path", route),
                    ("farthing.metered", "true"),
                    ("http.response.status_code", "200"),
                ] {
                    assert_eq!(call.get(attribute), Some(value), "{route}: {attribute}");
                }
                let exchange = named(&spans, "POST");
                for (attribute, value) in [
                    ("gen_ai.provider.name", "deepseek"),
                    ("gen_ai.request.model", "m"),
                    ("gen_ai.usage.input_tokens", "11"),
                    ("gen_ai.usage.output_tokens", "7"),
                    ("farthing.provider_key", "caller"),
                    ("farthing.ending", "whole"),
                ] {
                    assert_eq!(exchange.get(attribute), Some(value), "{route}: {attribute}");
                }
                assert!(!spans.iter().any(|span| span.is_error), "{spans:?}");
                seen += 1;
            }
        }
        assert_eq!((by_model.calls().len(), by_url.calls().len(), seen), (6, 2, 8));
        for call in by_model.calls().iter().chain(&by_url.calls()) {
            assert!(call.head.all("traceparent").is_empty(), "the trace reached the provider");
        }
        let messages = format!("{:?}", collector.messages());
        for secret in
            [key.as_str(), &merchant.secret_key, CALLERS_KEY, &by_url.path, "a private", &merchant.id]
        {
            assert!(!messages.contains(secret), "{secret}: {messages}");
        }
    });
}
