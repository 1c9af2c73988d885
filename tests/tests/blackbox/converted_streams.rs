//! Converted streams of providers of OpenAI's format that have quirks of their own: they are not asked for their usage,
//! which they report unasked, each in another place.

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::{Provider, chunk, event_stream, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

use super::providers::{Keys, gateway_with, prices, tokens};
use super::rewrite::rewrite;
use super::rewrite_responses::{anthropic_text, events};

/// Mistral reports in the chunk that ends the answer.
const MISTRALS: [&str; 3] = [
    r#"{"id":"m-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}"#,
    r#"{"id":"m-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":"lo."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"total_tokens":1100,"completion_tokens":100}}"#,
    "[DONE]",
];

/// Perplexity reports in every chunk, with the message so far and what it found.
const PERPLEXITYS: [&str; 4] = [
    r#"{"id":"p-1","model":"m","created":1700000000,"usage":{"prompt_tokens":1000,"completion_tokens":1,"total_tokens":1001,"search_context_size":"low"},"citations":["https://a.example"],"search_results":[{"title":"A","url":"https://a.example","date":null}],"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"message":{"role":"assistant","content":"Hel"},"delta":{"role":"assistant","content":"Hel"}}]}"#,
    r#"{"id":"p-1","model":"m","created":1700000000,"usage":{"prompt_tokens":1000,"completion_tokens":60,"total_tokens":1060,"search_context_size":"low"},"citations":["https://a.example"],"search_results":[],"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":null,"message":{"role":"assistant","content":"Hello."},"delta":{"role":"assistant","content":"lo."}}]}"#,
    r#"{"id":"p-1","model":"m","created":1700000000,"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"search_context_size":"low","cost":{"total_cost":0.9}},"citations":["https://a.example"],"search_results":[],"object":"chat.completion.chunk","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."},"delta":{"role":"assistant","content":""}}]}"#,
    "[DONE]",
];

/// `OpenRouter` reports after the end, in a chunk that has a choice again.
const OPENROUTERS: [&str; 4] = [
    r#"{"id":"gen-1","provider":"A","model":"m","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null,"native_finish_reason":null,"logprobs":null}]}"#,
    r#"{"id":"gen-1","provider":"A","model":"m","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"delta":{"role":"assistant","content":"lo."},"finish_reason":"stop","native_finish_reason":"end_turn","logprobs":null}]}"#,
    r#"{"id":"gen-1","provider":"A","model":"m","object":"chat.completion.chunk","created":1700000000,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"native_finish_reason":null,"logprobs":null}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"cost":0.95,"is_byok":false}}"#,
    "[DONE]",
];

/// Reads the text and the output tokens of a stream in the client's format.
type Reader = fn(&[Value]) -> (String, Value);

fn anthropics(events: &[Value]) -> (String, Value) {
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(delta["delta"]["stop_reason"], "end_turn");
    (anthropic_text(events), delta["usage"]["output_tokens"].clone())
}

fn responses(events: &[Value]) -> (String, Value) {
    let end = events.last().unwrap();
    assert_eq!(
        (&end["type"], &end["response"]["status"]),
        (&json!("response.completed"), &json!("completed"))
    );
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    let text = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    (text, end["response"]["usage"]["output_tokens"].clone())
}

fn googles(events: &[Value]) -> (String, Value) {
    let parts = events.iter().filter_map(|event| event["candidates"][0]["content"]["parts"].as_array());
    let text = parts.flatten().filter_map(|part| part["text"].as_str()).collect();
    let finish: Vec<&Value> =
        events.iter().filter_map(|event| event["candidates"][0].get("finishReason")).collect();
    assert_eq!(finish, ["STOP"]);
    (text, events.last().unwrap()["usageMetadata"]["candidatesTokenCount"].clone())
}

#[test]
fn a_converted_stream_is_not_asked_for_the_usage_that_its_provider_reports_unasked() {
    run(async {
        let models = ["mistral", "perplexity", "openrouter"].map(|name| {
            format!(r#"{{"provider":"{name}","model":"m","input_per_1m":"2","output_per_1m":"4","max_output_tokens":500}}"#)
        });
        let prices = prices(&models.join(","));
        let key = Instance::shared().await.provider_key("mistral", "sk-managed-mistral");
        let (managed, others) =
            gateway_with(&["perplexity", "openrouter"], Keys::Managed, &[&prices, &key]).await;
        let merchant = Merchant::funded("100").await;
        let cases: [(&str, &Provider, &str, &[&str]); 3] = [
            ("mistral", &managed.mistral, "/v1/chat/completions", &MISTRALS),
            ("perplexity", &others[0], "/chat/completions", &PERPLEXITYS),
            ("openrouter", &others[1], "/api/v1/chat/completions", &OPENROUTERS),
        ];
        for (name, provider, path, sent) in cases {
            let sent: Vec<String> = sent.iter().map(|data| format!("data: {data}\n\n")).collect();
            let endpoint = provider.endpoint_at(path, move |_| {
                let comment = chunk(": PROCESSING\n\n");
                let events = sent.iter().map(chunk);
                [event_stream(), comment].into_iter().chain(events).chain([last_chunk()]).collect()
            });
            let messages = json!([{"role": "user", "content": "Hi"}]);
            let model = format!("{name}/m");
            let by_anthropics =
                json!({"model": model, "messages": messages, "max_tokens": 100, "stream": true});
            let by_responses =
                json!({"model": model, "input": "Hi", "max_output_tokens": 100, "stream": true});
            let by_googles = json!({
                "contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"maxOutputTokens": 100},
            });
            let url = format!("{}/v1beta/models/m:streamGenerateContent?alt=sse", endpoint.url);
            let clients: [(Request, Reader); 3] = [
                (Request::new("POST", "/v1/messages").json(&by_anthropics), anthropics),
                (Request::new("POST", "/v1/responses").json(&by_responses), responses),
                (rewrite("google", &url, &by_googles), googles),
            ];
            for (request, read) in clients {
                let target = request.target.clone();
                let response = managed.send(&merchant.secret_key, request).await;
                assert_eq!(
                    (response.status, response.complete),
                    (200, true),
                    "{name} {target}: {}",
                    response.text()
                );
                let told = read(&events(&response.text()));
                assert_eq!(told, ("Hello.".to_owned(), json!(100)), "{name} {target}: {}", response.text());
                let body: Value = serde_json::from_slice(&endpoint.calls().pop().unwrap().body).unwrap();
                assert_eq!(body.get("stream_options"), None, "{name} {target}: {body}");
                assert_eq!(
                    (&body["stream"], &body["max_tokens"], &body["model"]),
                    (&json!(true), &json!(100), &json!("m")),
                    "{name} {target}: {body}"
                );
                let metered = merchant.charged(&response).await;
                assert_eq!(metered["usage"]["tokens"], tokens(1000, 100), "{name} {target}");
                assert_eq!(
                    (&metered["total_merchant_cost"], &metered["marks"]),
                    (&json!("0.0024000000"), &json!([])),
                    "{name} {target}"
                );
            }
            assert_eq!(endpoint.calls().len(), 3, "{name}");
        }
        merchant.nothing_is_held().await;
    });
}
