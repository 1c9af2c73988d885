//! Built-in providers, one by one: how each reports usage, and what is sold on a managed key (`docs/providers.md` names
//! these tests).

use farthing_tests::client::{Body, Request};
use farthing_tests::instance::Instance;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, encoded, forward, token};
use farthing_tests::provider::{Endpoint, Provider, chunk, event_stream, json, json_text, last_chunk};
use farthing_tests::run;
use serde_json::{Value, json};

/// A gateway with these providers at hosts of the test's, each with a managed key if `keys` says so.
pub(super) async fn gateway_with(names: &[&str], keys: Keys, more: &[&str]) -> (Managed, Vec<Provider>) {
    let instance = Instance::shared().await;
    let (mut providers, mut flags) = (Vec::new(), Vec::new());
    for name in names {
        let provider = Provider::start().await;
        flags.push(format!("--provider-host={name}={}", provider.authority()));
        if keys == Keys::Managed {
            flags.push(instance.provider_key(name, &format!("sk-managed-{name}")));
        }
        providers.push(provider);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    (Managed::start(&flags).await, providers)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    Managed,
    None,
}

/// The usage of a call to `endpoint` with the caller's own key.
async fn usage_of(managed: &Managed, merchant: &Merchant, endpoint: &Endpoint, body: &Value) -> Value {
    let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
    let response = managed.send(&credential, forward("POST", &endpoint.url).json(body)).await;
    assert_eq!(response.status, 200, "{}", response.text());
    merchant.charged(&response).await["usage"].clone()
}

pub(super) fn tokens(input: u64, output: u64) -> Value {
    json!({"input": input, "output": output})
}

#[test]
fn groqs_stream_reports_its_usage_in_a_member_of_its_own() {
    run(async {
        let (managed, providers) = gateway_with(&["groq"], Keys::None, &[]).await;
        let merchant = Merchant::funded("1").await;
        let endpoint = providers[0].endpoint_ending("/openai/v1/chat/completions", |_| {
            let events = [
                r#"{"id":"chatcmpl-1","model":"llama","choices":[{"delta":{"content":"Hi"}}],"x_groq":{"id":"req_theirs"}}"#,
                r#"{"id":"chatcmpl-1","model":"llama","choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"req_theirs","usage":{"queue_time":0.1,"prompt_tokens":30,"completion_tokens":12,"total_tokens":42}}}"#,
                "[DONE]",
            ];
            let events = events.into_iter().map(|data| chunk(format!("data: {data}\n\n")));
            std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
        });
        let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let request = forward("POST", &endpoint.url).json(&json!({"model": "llama", "stream": true}));
        let response = managed.send(&credential, request).await;
        assert_eq!(response.status, 200);
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["usage"]["tokens"], tokens(30, 12), "{metered}");
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["response_id"], "chatcmpl-1", "not the id in x_groq");
        assert!(endpoint.only_call().body.windows(14).all(|part| part != b"stream_options"));
    });
}

#[test]
fn moonshots_stream_reports_its_usage_in_its_last_choice_and_its_cache_beside_the_details() {
    run(async {
        let (managed, providers) = gateway_with(&["moonshot"], Keys::None, &[]).await;
        let merchant = Merchant::funded("1").await;
        let usage = r#"{"prompt_tokens":19,"completion_tokens":21,"total_tokens":40,"cached_tokens":10}"#;
        let last =
            format!(r#"{{"id":"c-1","choices":[{{"delta":{{}},"finish_reason":"stop","usage":{usage}}}]}}"#);
        // As well in a chunk of its own, if the caller asks for it.
        let with_details = r#"{"prompt_tokens":19,"completion_tokens":21,"total_tokens":40,"cached_tokens":10,"prompt_tokens_details":{"cached_tokens":10}}"#;
        let asked = format!(r#"{{"id":"c-1","choices":[],"usage":{with_details}}}"#);
        for events in [vec![last.clone()], vec![last, asked]] {
            let endpoint = providers[0].endpoint_ending("/v1/chat/completions", move |_| {
                let text = r#"{"id":"c-1","choices":[{"delta":{"content":"Hi"}}]}"#.to_owned();
                let events = std::iter::once(text).chain(events.clone()).chain(["[DONE]".to_owned()]);
                let events = events.map(|data| chunk(format!("data: {data}\n\n")));
                std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
            });
            let body = json!({"model": "kimi-k2.6", "stream": true});
            let usage = usage_of(&managed, &merchant, &endpoint, &body).await;
            assert_eq!(usage["tokens"], tokens(19, 21), "{usage}");
            assert_eq!(usage["cached"], json!({"read": 10, "write": 0}), "{usage}");
            assert_eq!(endpoint.only_call().body, body.to_string().into_bytes());
        }
    });
}

#[test]
fn cohere_is_metered_by_the_units_that_it_bills() {
    run(async {
        let (managed, providers) = gateway_with(&["cohere"], Keys::None, &[]).await;
        let merchant = Merchant::funded("1").await;
        let usage = r#"{"billed_units":{"input_tokens":5.0,"output_tokens":9},"tokens":{"input_tokens":71,"output_tokens":11}}"#;
        let chat = format!(r#"{{"id":"c-1","message":{{"role":"assistant"}},"usage":{usage}}}"#);
        let events = format!(
            "event: message-start\ndata: {{\"id\":\"c-1\",\"type\":\"message-start\",\"delta\":{{\"message\":{{}}}}}}\n\n\
             event: message-end\ndata: {{\"type\":\"message-end\",\"delta\":{{\"finish_reason\":\"COMPLETE\",\"usage\":{usage}}}}}\n\n"
        );
        let embed = r#"{"id":"e-1","embeddings":{"float":[[0.1]]},"meta":{"api_version":{"version":"2"},"billed_units":{"input_tokens":3}}}"#;
        let compatible =
            r#"{"id":"o-1","choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#;
        let first_version = format!(
            "{{\"event_type\":\"text-generation\",\"text\":\"Hi\"}}\n{{\"event_type\":\"stream-end\",\"response\":{{\"text\":\"Hi\",\"meta\":{usage}}}}}\n"
        );
        let cohere = &providers[0];
        for (endpoint, expected) in [
            (cohere.endpoint_ending("/v2/chat", move |_| json_text(200, &chat)), tokens(5, 9)),
            (
                cohere
                    .endpoint_ending("/v2/chat", move |_| vec![event_stream(), chunk(&events), last_chunk()]),
                tokens(5, 9),
            ),
            (cohere.endpoint_ending("/v1/chat", move |_| json_text(200, &first_version)), tokens(5, 9)),
            (cohere.endpoint_ending("/v2/embed", move |_| json_text(200, embed)), tokens(3, 0)),
            (
                cohere.endpoint_ending("/compatibility/v1/chat/completions", move |_| {
                    json_text(200, compatible)
                }),
                tokens(4, 2),
            ),
        ] {
            let usage =
                usage_of(&managed, &merchant, &endpoint, &json!({"model": "command-a-03-2025"})).await;
            assert_eq!(usage["tokens"], expected, "{}", endpoint.path);
        }
    });
}

#[test]
fn a_managed_stream_of_coheres_compatible_path_is_refused_because_its_usage_is_unknown() {
    run(async {
        let prices = prices(
            r#"{"provider":"cohere","model":"command-ours","input_per_1m":"1","output_per_1m":"2","max_output_tokens":100}"#,
        );
        let (managed, providers) = gateway_with(&["cohere"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("1").await;
        let endpoint = providers[0].endpoint_ending("/compatibility/v1/chat/completions", |_| {
            json(200, &json!({"usage": {"prompt_tokens": 1_000, "completion_tokens": 10}}))
        });
        let ask = async |stream: bool, options: Value| {
            let body = json!({
                "model": "command-ours", "max_tokens": 10, "stream": stream, "stream_options": options,
            });
            managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&body)).await
        };
        // Whether such a stream reports what it is asked for is not known either.
        for options in [json!(null), json!({"include_usage": false}), json!({"include_usage": true})] {
            let refused = ask(true, options.clone()).await.refused(400, "validation_error");
            assert_eq!(refused["issues"][0]["path"], json!(["stream"]), "{options}");
        }
        let converted = json!({
            "model": "cohere/command-ours", "max_tokens": 10, "stream": true,
            "messages": [{"role": "user", "content": "Hi"}],
        });
        let converted = Request::new("POST", "/v1/messages").json(&converted);
        managed.send(&merchant.secret_key, converted).await.refused(400, "validation_error");
        assert!(endpoint.calls().is_empty());
        let response = ask(false, json!(null)).await;
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0010200000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn coheres_own_chat_and_embeddings_are_charged_on_a_managed_key() {
    run(async {
        let prices = prices(
            r#"{"provider":"cohere","model":"command-billed","input_per_1m":"1","output_per_1m":"2","max_output_tokens":100},{"provider":"cohere","model":"embed-billed","input_per_1m":"10","max_input_tokens":5000}"#,
        );
        let (managed, providers) = gateway_with(&["cohere"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("5").await;
        let usage = r#"{"billed_units":{"input_tokens":1000,"output_tokens":10},"tokens":{"input_tokens":9999,"output_tokens":99}}"#;
        let chat = format!(r#"{{"id":"c-1","message":{{"role":"assistant"}},"usage":{usage}}}"#);
        let events = format!(
            "event: message-start\ndata: {{\"id\":\"c-1\",\"type\":\"message-start\",\"delta\":{{\"message\":{{}}}}}}\n\n\
             event: message-end\ndata: {{\"type\":\"message-end\",\"delta\":{{\"finish_reason\":\"COMPLETE\",\"usage\":{usage}}}}}\n\n"
        );
        let embed =
            r#"{"id":"e-1","embeddings":{"float":[[0.1]]},"meta":{"billed_units":{"input_tokens":3}}}"#;
        let cohere = &providers[0];
        let endpoints = [
            cohere.endpoint_ending("/v2/chat", move |_| json_text(200, &chat)),
            cohere.endpoint_ending("/v2/chat", move |_| vec![event_stream(), chunk(&events), last_chunk()]),
            cohere.endpoint_ending("/v2/embed", move |_| json_text(200, embed)),
        ];
        let messages = json!([{"role": "user", "content": "x".repeat(1_000)}]);
        for (endpoint, body, counted, cost) in [
            (
                &endpoints[0],
                json!({"model": "command-billed", "max_tokens": 10, "messages": messages}),
                tokens(1_000, 10),
                "0.0010200000",
            ),
            (
                &endpoints[1],
                json!({"model": "command-billed", "max_tokens": 10, "messages": messages, "stream": true}),
                tokens(1_000, 10),
                "0.0010200000",
            ),
            (
                &endpoints[2],
                json!({"model": "embed-billed", "input_type": "search_query", "texts": ["a", "b"], "embedding_types": ["float"]}),
                tokens(3, 0),
                "0.0000300000",
            ),
        ] {
            let request = forward("POST", &endpoint.url).json(&body);
            let response = managed.send(&merchant.secret_key, request).await;
            assert_eq!(response.status, 200, "{}: {}", endpoint.path, response.text());
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], counted, "{}: {metered}", endpoint.path);
            assert_eq!(metered["total_merchant_cost"], cost, "{}", endpoint.path);
            assert_eq!(metered["marks"], json!([]), "{}", endpoint.path);
            let call = endpoint.only_call();
            assert_eq!(call.head.all("authorization"), ["Bearer sk-managed-cohere"], "{}", endpoint.path);
            assert_eq!(call.body, body.to_string().into_bytes(), "its streams report unasked");
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(
                (&shown["provider"], &shown["provider_key_type"]),
                (&json!("cohere"), &json!("managed"))
            );
        }
        // Connectors and images have prices of their own.
        for (endpoint, body, name) in [
            (
                &endpoints[0],
                json!({"model": "command-billed", "messages": [], "connectors": [{"id": "web"}]}),
                "connectors",
            ),
            (
                &endpoints[2],
                json!({"model": "embed-billed", "input_type": "image", "images": ["data:x"]}),
                "images",
            ),
        ] {
            let request = forward("POST", &endpoint.url).json(&body);
            let refused = managed.send(&merchant.secret_key, request).await.refused(400, "validation_error");
            assert_eq!(refused["issues"][0]["path"], json!([name]));
            assert_eq!(endpoint.calls().len(), 1);
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn what_a_provider_bills_besides_tokens_or_at_another_price_is_refused_on_a_managed_key() {
    run(async {
        let members: [(&str, &[&str]); 9] = [
            ("groq", &["compound_custom"]),
            ("perplexity", &["models", "preset", "fallbacks"]),
            ("xai", &["deferred"]),
            ("mistral", &["agent_id"]),
            ("cohere", &["connectors", "images", "inputs"]),
            ("openrouter", &["models", "provider", "plugins", "route", "preset", "fallbacks"]),
            ("dashscope", &["enable_search", "search_options", "enable_thinking"]),
            ("vercel", &["models", "providerOptions"]),
            ("azure", &["data_sources", "dataSources"]),
        ];
        let names = members.map(|(name, _)| name);
        let listed = names.iter().chain(&["anthropic"]).map(|name| {
            format!(r#"{{"provider":"{name}","model":"m","input_per_1m":"1","output_per_1m":"1"}}"#)
        });
        let prices = prices(&listed.collect::<Vec<_>>().join(","));
        let (managed, providers) = gateway_with(&names, Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("1").await;
        let of_anthropic: &[&str] = &["compaction", "context_management", "fallbacks"];
        let all = members.into_iter().zip(&providers);
        for ((name, members), provider) in all.chain([(("anthropic", of_anthropic), &managed.anthropic)]) {
            let endpoint = provider.endpoint_ending("/v1/chat/completions", |_| json(200, &json!({})));
            let ask = async |member: Option<&str>| {
                let mut body = json!({"model": "m", "messages": []});
                if let Some(member) = member {
                    body[member] = json!(["x"]);
                }
                managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&body)).await
            };
            for member in members {
                let refused = ask(Some(member)).await.refused(400, "validation_error");
                assert_eq!(refused["issues"][0]["path"], json!([member]), "{name}: {refused}");
            }
            assert!(endpoint.calls().is_empty(), "{name}");
            ask(None).await.expect(200);
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_spend_key_with_a_list_of_models_is_held_to_all_models_that_a_body_names() {
    run(async {
        let (managed, providers) = gateway_with(&["openrouter", "vercel", "groq"], Keys::None, &[]).await;
        let merchant = Merchant::funded("5").await;
        let post = async |settings: Value| merchant.post("/v1/spend_keys", &settings).await.expect(201);
        let listed = post(json!({"name": "k", "allowed_models": ["cheap", "small"]})).await;
        let free = post(json!({"name": "free"})).await;
        let credential = |key: &Value| token(&json!({"spend_key": key["key"], "provider_key": "sk-theirs"}));
        let (listed, free) = (credential(&listed), credential(&free));
        let at =
            |provider: &Provider| provider.endpoint_ending("/v1/chat/completions", |_| json(200, &json!({})));
        let [openai, anthropic, openrouter, vercel, groq] =
            [&managed.openai, &managed.anthropic, &providers[0], &providers[1], &providers[2]].map(at);
        let (unknown, mistral) = (at(&merchant.instance.provider), at(&managed.mistral));
        let ask = async |credential: &str, url: &str, (member, value): (&str, Value)| {
            let mut body = json!({"model": "cheap", "messages": []});
            body[member] = value;
            managed.send(credential, forward("POST", url).json(&body)).await
        };
        for (endpoint, member, value) in [
            (&openrouter, "models", json!(["cheap", "small"])),
            (&openrouter, "models", json!([])),
            (&openrouter, "preset", json!(null)),
            (&openrouter, "provider", json!({"order": ["x"]})),
            (&anthropic, "fallbacks", json!([{"model": "small"}])),
            (&openai, "preset", json!("means something else here")),
        ] {
            let calls = endpoint.calls().len();
            ask(&listed, &endpoint.url, (member, value)).await.expect(200);
            assert_eq!(endpoint.calls().len(), calls + 1, "{member}");
        }
        for (endpoint, member, value) in [
            (&openrouter, "models", json!(["cheap", "dear"])),
            (&openrouter, "Models", json!(["dear"])),
            (&openrouter, "models", json!("dear")),
            (&openrouter, "models", json!({"dear": 1})),
            (&openrouter, "preset", json!("theirs")),
            (&openrouter, "plugins", json!([{"id": "auto-router"}])),
            (&openrouter, "fallbacks", json!([{"model": "dear"}])),
            (&vercel, "models", json!(["dear"])),
            (&vercel, "providerOptions", json!({"gateway": {"models": ["dear"]}})),
            (&anthropic, "fallbacks", json!([{"model": "small"}, {"model": "dear"}])),
            (&mistral, "agent_id", json!("theirs")),
            (&groq, "compound_custom", json!({"models": {"answering_model": "dear"}})),
            (&openai, "models", json!(["dear"])),
            (&unknown, "models", json!(["dear"])),
            (&unknown, "fallbacks", json!(["dear"])),
        ] {
            let calls = endpoint.calls().len();
            let refused = ask(&listed, &endpoint.url, (member, value.clone())).await;
            refused.refused(403, "model_not_allowed");
            assert_eq!(endpoint.calls().len(), calls, "{member}: {value}");
            ask(&free, &endpoint.url, (member, value)).await.expect(200);
        }
        // Escaped, and at the endpoints that read bodies whole.
        let escaped = r#"{"model":"cheap","messages":[],"mod\u0065ls":["dear"]}"#;
        for target in
            [forward("POST", &openrouter.url).target, format!("/v1/rewrite/openai/{}", openrouter.url)]
        {
            let request = Request::new("POST", target).header("Content-Type", "application/json");
            let request = request.body(Body::Whole(escaped.as_bytes().to_vec()));
            managed.send(&listed, request).await.refused(403, "model_not_allowed");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn dashscopes_cache_writes_are_billed_at_their_price() {
    run(async {
        let prices = prices(
            r#"{"provider":"dashscope","model":"m","input_per_1m":"4","output_per_1m":"8","cache_read_per_1m":"1","cache_write_per_1m":"5"}"#,
        );
        let (managed, providers) = gateway_with(&["dashscope"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("1").await;
        let endpoint = providers[0].endpoint_ending("/compatible-mode/v1/chat/completions", |_| {
            json(
                200,
                &json!({"usage": {"prompt_tokens": 3000, "completion_tokens": 100, "prompt_tokens_details":
                {"cached_tokens": 1000, "cache_creation_input_tokens": 1000}}}),
            )
        });
        let body = json!({"model": "m", "max_tokens": 100, "messages": []});
        let response = managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&body)).await;
        // 1000 × 4 + 1000 × 1 + 1000 × 5 + 100 × 8, per million.
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0108000000");
    });
}

#[test]
fn openrouters_usage_counts_its_cache_and_a_managed_call_chooses_no_other_price() {
    run(async {
        let prices = prices(
            r#"{"provider":"openrouter","model":"vendor/model","input_per_1m":"10","output_per_1m":"20","cache_read_per_1m":"1","cache_write_per_1m":"30"}"#,
        );
        let (managed, providers) = gateway_with(&["openrouter"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("5").await;
        let usage = r#"{"prompt_tokens":194,"completion_tokens":2,"total_tokens":196,"cost":0.95,"cost_details":{"upstream_inference_cost":19},"prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":100}}"#;
        let stream = format!(
            "data: {{\"id\":\"gen-1\",\"choices\":[{{\"delta\":{{\"content\":\"x\"}}}}]}}\n\n\
             data: {{\"id\":\"gen-1\",\"choices\":[{{\"delta\":{{}}}}],\"usage\":{usage}}}\n\ndata: [DONE]\n\n"
        );
        let sent = stream.clone();
        let endpoint = providers[0].endpoint_ending("/api/v1/chat/completions", move |_| {
            vec![event_stream(), chunk(&sent), last_chunk()]
        });
        let asked = json!({"model": "vendor/model", "max_tokens": 10, "stream": true});
        let response = managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&asked)).await;
        assert_eq!((response.status, response.text()), (200, stream));
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["usage"]["cached"], json!({"read": 50, "write": 100}));
        // 44 × 10 + 50 × 1 + 100 × 30 and 2 × 20 per million.
        assert_eq!(metered["model_cost"]["total"], "0.0035300000");
        let call = endpoint.only_call();
        assert_eq!(call.body, asked.to_string().into_bytes(), "its streams report unasked");
        for (name, value) in [
            ("models", json!(["vendor/model", "vendor/dear"])),
            ("plugins", json!([{"id": "web"}])),
            ("provider", json!({"sort": "throughput"})),
        ] {
            let mut body = asked.clone();
            body[name] = value;
            let refused =
                managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&body)).await;
            assert_eq!(refused.refused(400, "validation_error")["issues"][0]["path"], json!([name]));
        }
        assert_eq!(endpoint.calls().len(), 1);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn perplexitys_fee_per_call_is_charged_beside_the_tokens_that_its_streams_report_unasked() {
    run(async {
        let prices = prices(
            r#"{"provider":"perplexity","model":"sonar-ours","input_per_1m":"1","output_per_1m":"3","per_request":"0.008","max_output_tokens":500}"#,
        );
        let (managed, providers) = gateway_with(&["perplexity"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("5").await;
        // It reports the usage so far with every chunk, and a cost of its own.
        let usage = |output: u32| {
            format!(
                r#"{{"prompt_tokens":1000,"completion_tokens":{output},"total_tokens":{},"search_context_size":"low","num_search_queries":3,"cost":{{"request_cost":0.005,"total_cost":0.9}}}}"#,
                1000 + output
            )
        };
        let event = |output: u32, finish: &str| {
            format!(
                "data: {{\"id\":\"p-1\",\"model\":\"sonar-ours\",\"usage\":{},\"citations\":[\"https://a.example\"],\
                 \"choices\":[{{\"index\":0,\"finish_reason\":{finish},\"delta\":{{\"content\":\"x\"}}}}]}}\n\n",
                usage(output)
            )
        };
        let stream =
            format!("{}{}{}data: [DONE]\n\n", event(1, "null"), event(60, "null"), event(100, "\"stop\""));
        let whole = format!(
            r#"{{"id":"p-2","model":"sonar-ours","usage":{},"choices":[{{"index":0,"finish_reason":"stop","message":{{"role":"assistant","content":"x"}}}}]}}"#,
            usage(100)
        );
        let (sent_stream, sent_whole) = (stream.clone(), whole.clone());
        let endpoint = providers[0].endpoint_ending("/chat/completions", move |call| {
            let is_stream = String::from_utf8_lossy(&call.body).contains("\"stream\":true");
            if is_stream {
                vec![event_stream(), chunk(&sent_stream), last_chunk()]
            } else {
                json_text(200, &sent_whole)
            }
        });
        for (is_stream, expected) in [(true, &stream), (false, &whole)] {
            let asked =
                json!({"model": "sonar-ours", "max_tokens": 100, "messages": [], "stream": is_stream});
            let response =
                managed.send(&merchant.secret_key, forward("POST", &endpoint.url).json(&asked)).await;
            assert_eq!((response.status, &response.text()), (200, expected));
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"], tokens(1000, 100), "{metered}");
            // 0.008 for the call, and 1000 × 1 and 100 × 3 per million.
            assert_eq!(metered["model_cost"]["total"], "0.0093000000", "{metered}");
            assert_eq!(metered["total_merchant_cost"], "0.0093000000", "{metered}");
            let call = endpoint.calls().pop().unwrap();
            assert_eq!(call.body, asked.to_string().into_bytes(), "it is not asked for its usage");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn an_openai_compatible_provider_that_serves_messages_reports_as_anthropic_does() {
    run(async {
        let (managed, providers) = gateway_with(&["xai"], Keys::None, &[]).await;
        let merchant = Merchant::funded("1").await;
        let endpoint = providers[0].endpoint_ending("/v1/messages", |_| {
            let events = [
                r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":3,"cache_read_input_tokens":40,"output_tokens":1}}}"#,
                r#"{"type":"message_delta","usage":{"output_tokens":55}}"#,
                r#"{"type":"message_stop"}"#,
            ];
            let events = events.into_iter().map(|data| chunk(format!("data: {data}\n\n")));
            std::iter::once(event_stream()).chain(events).chain([last_chunk()]).collect()
        });
        let usage = usage_of(&managed, &merchant, &endpoint, &json!({"model": "grok", "stream": true})).await;
        assert_eq!(usage["tokens"], tokens(43, 55));
        assert_eq!(usage["cached"], json!({"read": 40, "write": 0}));
    });
}

#[test]
fn azure_bills_by_the_deployment_in_the_url_and_takes_a_managed_key_at_a_named_host_alone() {
    run(async {
        let prices = prices(
            r#"{"provider":"azure","model":"gpt-ours","input_per_1m":"10","output_per_1m":"20","max_output_tokens":100}"#,
        );
        let (managed, providers) = gateway_with(&["azure"], Keys::Managed, &[&prices]).await;
        let merchant = Merchant::funded("5").await;
        let answer = json!({"model": "gpt-4o", "usage": {"prompt_tokens": 1_000, "completion_tokens": 10}});
        let endpoint = {
            let answer = answer.clone();
            let path = "/openai/deployments/gpt-ours/chat/completions";
            providers[0].endpoint_ending(path, move |_| json(200, &answer))
        };
        let url = format!("{}?api-version=2024-10-21", endpoint.url);
        // The body's model is ignored, as Azure ignores it.
        let body = json!({"model": "gpt-cheap", "max_tokens": 10});
        let response = managed.send(&merchant.secret_key, forward("POST", &url).json(&body)).await;
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0102000000");
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!((&shown["provider"], &shown["provider_key_type"]), (&json!("azure"), &json!("managed")));
        let call = endpoint.only_call();
        assert_eq!(call.head.all("api-key"), ["sk-managed-azure"]);
        assert!(call.head.all("authorization").is_empty());

        // As Azure's client sends it: our key in its slot, the URL encoded, and the version beside it.
        let encoded_url = encoded(&endpoint.url);
        let request = Request::new("POST", format!("/v1/forward/?u={encoded_url}&api-version=2024-10-21"))
            .header("api-key", merchant.secret_key.as_str())
            .json(&json!({"model": "gpt-ours", "max_tokens": 10}));
        let response = request.send(managed.address()).await.unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0102000000");
        let call = endpoint.calls().pop().unwrap();
        assert_eq!(call.head.all("api-key"), ["sk-managed-azure"]);
        assert!(call.target().ends_with("/chat/completions?api-version=2024-10-21"), "{}", call.target());
        assert!(!format!("{:?}", call.head).contains(&merchant.secret_key));

        let in_body = providers[0].endpoint_ending("/openai/v1/responses", move |_| json(200, &answer));
        let body = json!({"model": "gpt-ours", "max_output_tokens": 10});
        let response = managed.send(&merchant.secret_key, forward("POST", &in_body.url).json(&body)).await;
        assert_eq!(merchant.charged(&response).await["model_cost"]["total"], "0.0102000000");

        // Anybody can rent a resource, so one that is not the operator's gets no key.
        for host in [
            "anybodys.openai.azure.com",
            "anybodys.cognitiveservices.azure.com",
            "anybodys.services.ai.azure.com",
        ] {
            let url = format!("https://{host}/openai/v1/responses");
            let request = forward("POST", &url).json(&body);
            managed.send(&merchant.secret_key, request).await.refused(400, "provider_key_missing");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_spend_key_with_a_list_of_models_is_held_to_the_deployment_in_azures_url() {
    run(async {
        let (managed, providers) = gateway_with(&["azure"], Keys::None, &[]).await;
        let merchant = Merchant::funded("5").await;
        let settings = json!({"name": "k", "allowed_models": ["allowed"]});
        let key = merchant.post("/v1/spend_keys", &settings).await.expect(201);
        let credential = token(&json!({"spend_key": key["key"], "provider_key": "sk-theirs"}));
        let call = async |path: &str| {
            let endpoint = providers[0].endpoint_ending(path, |_| json(200, &json!({})));
            let request = forward("POST", &endpoint.url).json(&json!({"model": "allowed"}));
            managed.send(&credential, request).await
        };
        call("/openai/deployments/allowed/chat/completions").await.expect(200);
        for path in
            ["/openai/deployments/dear/chat/completions", "/openai/deployments/de%61r/chat/completions"]
        {
            call(path).await.refused(403, "model_not_allowed");
            let endpoint = providers[0].endpoint_ending(path, |_| json(200, &json!({})));
            let target = format!("/v1/rewrite/openai/{}", endpoint.url);
            let request = Request::new("POST", target).json(&json!({"model": "allowed", "messages": []}));
            // A URL that can be read in two ways is no endpoint there.
            let refusal =
                if path.contains('%') { (400, "forward_url_invalid") } else { (403, "model_not_allowed") };
            managed.send(&credential, request).await.refused(refusal.0, refusal.1);
            assert!(endpoint.calls().is_empty(), "{path}");
        }
    });
}

/// A flag that reads these models from a price file of the test's.
pub(super) fn prices(models: &str) -> String {
    let folder = std::env::temp_dir().join(format!("farthing-providers-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{:016x}.json", fingerprint(models)));
    let text = format!(r#"{{"source":"a test","licence":"ours","taken":"2026-11-20","models":[{models}]}}"#);
    // The gateway of another test may read it.
    let unfinished = file.with_extension(format!("{:?}", std::thread::current().id()));
    std::fs::write(&unfinished, text).unwrap();
    std::fs::rename(unfinished, &file).unwrap();
    format!("--prices={}", file.display())
}

fn fingerprint(text: &str) -> u64 {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
