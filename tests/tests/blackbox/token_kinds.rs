//! Every kind of token in an answer (cached reads and writes, reasoning) is metered in the same way by forward, the model
//! endpoints and rewrite, whatever format the client speaks, whole and streamed.

use farthing_tests::client::Request;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Call, Endpoint, Provider, Step, chunk, event_stream, json_text, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

use super::providers::{Keys, gateway_with, prices};
use super::rewrite::rewrite;

/// A provider's endpoint, with its answer whole and as events.
struct Answers {
    provider: &'static str,
    /// The paths of a whole answer and of a stream.
    paths: [&'static str; 2],
    whole: &'static str,
    events: &'static [&'static str],
    /// The model endpoints whose calls arrive there.
    model_endpoints: &'static [&'static str],
    /// The cached tokens, and those of reasoning, that are metered.
    cached: Value,
    reasoning: u64,
    /// The cost by the prices of the test.
    cost: &'static str,
}

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const GOOGLES_CHAT: &str = "/v1beta/openai/chat/completions";

/// 1,000 input tokens, of which 400 were read from a cache, and 100 output tokens, as each provider reports them.
fn answers() -> [Answers; 8] {
    [
        Answers {
            provider: "openai",
            paths: [CHAT, CHAT],
            whole: r#"{"id":"c-1","object":"chat.completion","created":1700000000,"model":"kinds","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"prompt_tokens_details":{"cached_tokens":400},"completion_tokens_details":{"reasoning_tokens":60}}}"#,
            events: &[
                r#"{"id":"c-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}"#,
                r#"{"id":"c-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"prompt_tokens_details":{"cached_tokens":400},"completion_tokens_details":{"reasoning_tokens":60}}}"#,
                "[DONE]",
            ],
            model_endpoints: &[CHAT, MESSAGES],
            cached: json!({"read": 400, "write": 0}),
            reasoning: 60,
            // 600 × 2, 400 × 1 and 100 × 4, per million.
            cost: "0.0020000000",
        },
        Answers {
            provider: "openai",
            paths: [RESPONSES, RESPONSES],
            whole: r#"{"id":"resp_1","object":"response","created_at":1700000000,"status":"completed","model":"kinds","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":400,"cache_write_tokens":300},"output_tokens":100,"output_tokens_details":{"reasoning_tokens":60},"total_tokens":1100}}"#,
            events: &[
                r#"{"type":"response.created","response":{"id":"resp_1","object":"response","created_at":1700000000,"status":"in_progress","model":"kinds","output":[]}}"#,
                r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"msg_1","delta":"Hello."}"#,
                r#"{"type":"response.completed","response":{"id":"resp_1","object":"response","created_at":1700000000,"status":"completed","model":"kinds","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":400,"cache_write_tokens":300},"output_tokens":100,"output_tokens_details":{"reasoning_tokens":60},"total_tokens":1100}}}"#,
            ],
            model_endpoints: &[RESPONSES],
            cached: json!({"read": 400, "write": 300}),
            reasoning: 60,
            // 300 × 2, 400 × 1, 300 × 8 and 100 × 4, per million.
            cost: "0.0038000000",
        },
        Answers {
            provider: "anthropic",
            paths: [MESSAGES, MESSAGES],
            whole: r#"{"id":"msg_1","type":"message","role":"assistant","model":"kinds","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":300,"cache_creation_input_tokens":300,"cache_read_input_tokens":400,"output_tokens":100}}"#,
            events: &[
                r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"kinds","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":300,"cache_creation_input_tokens":300,"cache_read_input_tokens":400,"output_tokens":1}}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello."}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":100}}"#,
                r#"{"type":"message_stop"}"#,
            ],
            model_endpoints: &[CHAT, RESPONSES, MESSAGES],
            cached: json!({"read": 400, "write": 300}),
            reasoning: 0,
            // 300 × 2, 400 × 1, 300 × 8 and 100 × 4, per million.
            cost: "0.0038000000",
        },
        Answers {
            provider: "anthropic",
            paths: ["/compaction/v1/messages"; 2],
            // It shortened the conversation first, and counts that among the iterations alone.
            whole: r#"{"id":"msg_1","type":"message","role":"assistant","model":"kinds","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":300,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":40,"iterations":[{"type":"compaction","input_tokens":300,"cache_read_input_tokens":400,"output_tokens":60},{"type":"message","input_tokens":300,"output_tokens":40}]}}"#,
            events: &[
                r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"kinds","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":300,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello."}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":40,"iterations":[{"type":"compaction","input_tokens":300,"cache_read_input_tokens":400,"output_tokens":60},{"type":"message","input_tokens":300,"output_tokens":40}]}}"#,
                r#"{"type":"message_stop"}"#,
            ],
            model_endpoints: &[],
            cached: json!({"read": 400, "write": 0}),
            reasoning: 0,
            cost: "0.0020000000",
        },
        Answers {
            provider: "google",
            paths: ["/v1beta/models/kinds:generateContent", "/v1beta/models/kinds:streamGenerateContent"],
            whole: r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello."}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":400,"candidatesTokenCount":40,"thoughtsTokenCount":60,"totalTokenCount":1100},"modelVersion":"kinds","responseId":"r-1"}"#,
            events: &[
                r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hel"}]},"index":0}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":1},"modelVersion":"kinds","responseId":"r-1"}"#,
                r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"lo."}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":400,"candidatesTokenCount":40,"thoughtsTokenCount":60,"totalTokenCount":1100},"modelVersion":"kinds","responseId":"r-1"}"#,
            ],
            model_endpoints: &[CHAT, RESPONSES, MESSAGES],
            cached: json!({"read": 400, "write": 0}),
            reasoning: 60,
            cost: "0.0020000000",
        },
        Answers {
            provider: "google",
            paths: [GOOGLES_CHAT, GOOGLES_CHAT],
            // It reports thinking in the total alone.
            whole: r#"{"id":"c-1","object":"chat.completion","created":1700000000,"model":"kinds","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"completion_tokens":40,"prompt_tokens":1000,"total_tokens":1100,"prompt_tokens_details":{"cached_tokens":400}}}"#,
            events: &[
                r#"{"id":"c-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}],"usage":{"completion_tokens":1,"prompt_tokens":1000,"total_tokens":1061}}"#,
                r#"{"id":"c-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[{"index":0,"delta":{"role":"assistant","content":"lo."},"finish_reason":"stop"}],"usage":{"completion_tokens":40,"prompt_tokens":1000,"total_tokens":1100,"prompt_tokens_details":{"cached_tokens":400}}}"#,
                "[DONE]",
            ],
            // They call its own format.
            model_endpoints: &[],
            cached: json!({"read": 400, "write": 0}),
            reasoning: 0,
            cost: "0.0020000000",
        },
        Answers {
            provider: "moonshot",
            paths: [CHAT, CHAT],
            // Cached tokens stand beside the details, and a stream reports in its last choice.
            whole: r#"{"id":"c-1","object":"chat.completion","created":1700000000,"model":"kinds","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"cached_tokens":400,"completion_tokens_details":{"reasoning_tokens":60}}}"#,
            events: &[
                r#"{"id":"c-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":null}]}"#,
                r#"{"id":"c-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"cached_tokens":400,"completion_tokens_details":{"reasoning_tokens":60}}}]}"#,
                "[DONE]",
            ],
            model_endpoints: &[CHAT, RESPONSES, MESSAGES],
            cached: json!({"read": 400, "write": 0}),
            reasoning: 60,
            cost: "0.0020000000",
        },
        Answers {
            provider: "openrouter",
            paths: ["/api/v1/chat/completions"; 2],
            whole: r#"{"id":"gen-1","object":"chat.completion","created":1700000000,"model":"kinds","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"prompt_tokens_details":{"cached_tokens":400,"cache_write_tokens":300},"completion_tokens_details":{"reasoning_tokens":60}}}"#,
            events: &[
                r#"{"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}"#,
                r#"{"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"kinds","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100,"prompt_tokens_details":{"cached_tokens":400,"cache_write_tokens":300},"completion_tokens_details":{"reasoning_tokens":60}}}"#,
                "[DONE]",
            ],
            model_endpoints: &[CHAT, RESPONSES, MESSAGES],
            cached: json!({"read": 400, "write": 300}),
            reasoning: 60,
            cost: "0.0038000000",
        },
    ]
}

impl Answers {
    /// The endpoints of a whole answer and of a stream, which may be one.
    fn endpoints(&self, provider: &Provider) -> [Endpoint; 2] {
        let (whole, events) = (self.whole, self.events);
        let respond = move |call: &Call| -> Vec<Step> {
            let body: Value = serde_json::from_slice(&call.body).unwrap();
            if body["stream"] != json!(true) && !call.target().contains(":streamGenerateContent") {
                return json_text(200, whole);
            }
            let events = events.iter().map(|data| chunk(format!("data: {data}\n\n")));
            std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
        };
        let [whole, streamed] = self.paths;
        let endpoint = provider.endpoint_at(whole, respond);
        let of_stream =
            if streamed == whole { endpoint.clone() } else { provider.endpoint_at(streamed, respond) };
        [endpoint, of_stream]
    }
}

/// The body of a call in the format whose path this is.
fn body(path: &str, model: &str, stream: bool) -> Value {
    if path.contains(":generateContent") || path.contains(":streamGenerateContent") {
        return json!({
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": {"maxOutputTokens": 200},
        });
    }
    let mut body = if path.ends_with("/responses") {
        json!({"model": model, "max_output_tokens": 200, "input": "Hi"})
    } else {
        json!({"model": model, "max_tokens": 200, "messages": [{"role": "user", "content": "Hi"}]})
    };
    if stream {
        body["stream"] = json!(true);
    }
    body
}

/// The same call at the model endpoints, and by rewrite for clients of each format.
fn other_ways(answers: &Answers, url: &str, stream: bool) -> Vec<Request> {
    let model = format!("{}/kinds", answers.provider);
    let by_model = answers.model_endpoints.iter();
    let by_model = by_model.map(|path| Request::new("POST", *path).json(&body(path, &model, stream)));
    let googles = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    let googles = format!("/v1beta/models/kinds:{googles}");
    let clients =
        [("openai", CHAT), ("openai", RESPONSES), ("anthropic", MESSAGES), ("google", googles.as_str())];
    let by_rewrite =
        clients.map(|(client, path)| rewrite(client, &format!("{url}{path}"), &body(path, "kinds", stream)));
    by_model.chain(by_rewrite).collect()
}

/// What is metered of an answer, whatever way the call took.
fn terms(metered: &Value) -> Value {
    let names = ["usage", "model_cost", "total_merchant_cost", "total_request_cost", "marks"];
    names.iter().map(|name| metered[*name].clone()).collect()
}

#[test]
fn every_kind_of_token_is_metered_at_the_model_endpoints_and_at_rewrite_as_forward_meters_it() {
    run(async {
        let models = ["openai", "anthropic", "google", "openrouter", "moonshot"].map(|name| {
            format!(
                r#"{{"provider":"{name}","model":"kinds","input_per_1m":"2","output_per_1m":"4","cache_read_per_1m":"1","cache_write_per_1m":"8"}}"#
            )
        });
        let prices = prices(&models.join(","));
        let (managed, others) = gateway_with(&["openrouter", "moonshot"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("100").await;
        for answers in answers() {
            let provider = match answers.provider {
                "openai" => &managed.openai,
                "anthropic" => &managed.anthropic,
                "google" => &managed.google,
                "openrouter" => &others[0],
                _ => &others[1],
            };
            let endpoints = answers.endpoints(provider);
            for (endpoint, stream) in endpoints.iter().zip([false, true]) {
                compare(&managed, &merchant, &answers, endpoint, stream).await;
            }
        }
        merchant.nothing_is_held().await;
    });
}

async fn compare(
    managed: &Managed,
    merchant: &Merchant,
    answers: &Answers,
    endpoint: &Endpoint,
    stream: bool,
) {
    let key = &merchant.secret_key;
    let alt = if endpoint.path.contains(":stream") { "?alt=sse" } else { "" };
    let request = forward("POST", &format!("{}{alt}", endpoint.url));
    let response = managed.send(key, request.json(&body(&endpoint.path, "kinds", stream))).await;
    assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
    let oracle = merchant.charged(&response).await;
    let at = format!("{}{}, stream: {stream}", answers.provider, endpoint.path);
    assert_eq!(oracle["usage"]["tokens"], json!({"input": 1000, "output": 100}), "{at}: {oracle}");
    assert_eq!(oracle["usage"]["cached"], answers.cached, "{at}: {oracle}");
    let reasoning = oracle["usage"]["reasoning_tokens"].as_u64().unwrap_or(0);
    assert_eq!(reasoning, answers.reasoning, "{at}: {oracle}");
    assert_eq!(oracle["total_merchant_cost"], answers.cost, "{at}: {oracle}");
    let shown = merchant.shown(&response.request_id(), "completed").await;
    for request in other_ways(answers, &endpoint.url, stream) {
        let way = format!("{at} by {}", request.target);
        let calls = endpoint.calls().len();
        let response = managed.send(key, request).await;
        assert_eq!((response.status, response.complete), (200, true), "{way}: {}", response.text());
        assert!(response.text().contains("lo."), "{way}: {}", response.text());
        assert_eq!(endpoint.calls().len(), calls + 1, "{way}");
        assert_eq!(terms(&merchant.charged(&response).await), terms(&oracle), "{way}");
        let again = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(again["model_usage"], shown["model_usage"], "{way}");
    }
}
