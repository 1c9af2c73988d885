//! Bodies of managed calls that hide what is priced apart, or how usage is reported, from the gateway's reader.

use farthing_tests::client::{Body, Request};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Provider, json};
use farthing_tests::run;
use serde_json::{Value, json};

use farthing_tests::managed::Managed;

fn post(endpoint: &Endpoint, content_type: &str, body: impl Into<Vec<u8>>) -> Request {
    forward("POST", &endpoint.url).header("Content-Type", content_type).body(Body::Whole(body.into()))
}

fn endpoint(managed: &Managed) -> Endpoint {
    managed.openai.endpoint_ending("/v1/responses", |_| {
        json(200, &json!({"usage": {"input_tokens": 1, "output_tokens": 1}}))
    })
}

/// An endpoint whose path names the model, as Google's do.
fn of_google(managed: &Managed) -> Endpoint {
    managed.google.endpoint_ending("/v1beta/models/gemini-2.5-pro:generateContent", |_| {
        json(200, &json!({"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1}}))
    })
}

/// Sends each body, which must be refused for the member beside it before anything is sent.
async fn are_refused(managed: &Managed, at: &Endpoint, content_type: &str, bodies: &[(Vec<u8>, &str)]) {
    let merchant = Merchant::funded("10").await;
    for (body, member) in bodies {
        let refused = managed.send(&merchant.secret_key, post(at, content_type, body.clone())).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        assert_eq!(refused.status, 400, "{shown}: {}", refused.text());
        let error = refused.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!([member]), "{shown}");
    }
    assert!(at.calls().is_empty());
    merchant.nothing_is_held().await;
}

#[test]
fn a_body_that_cannot_be_read_does_not_hide_what_is_priced_apart() {
    run(async {
        let managed = Managed::start(&[]).await;
        let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
        let unreadable = [
            r#""description":"\ud800""#.to_owned(),
            r#""maximum":1e999"#.to_owned(),
            format!(r#""p":{deep}"#),
        ];
        let mut bodies = Vec::new();
        for priced in ["web_search_preview", "code_interpreter"] {
            for hidden in &unreadable {
                let function = format!(r#"{{"type":"function","name":"f",{hidden}}}"#);
                for tools in [
                    format!(r#"[{{"type":"{priced}"}},{function}]"#),
                    format!(r#"[{function},{{"type":"{priced}"}}]"#),
                ] {
                    bodies.push((format!(r#"{{"model":"gpt-4o","tools":{tools}}}"#).into_bytes(), "tools"));
                }
            }
            for tool in [
                format!(r#"{{"type":"{priced}","type":"function"}}"#),
                format!(r#"{{"type":"function","TYPE":"{priced}"}}"#),
            ] {
                bodies.push((format!(r#"{{"model":"gpt-4o","tools":[{tool}]}}"#).into_bytes(), "tools"));
                bodies.push((format!(r#"{{"model":"gpt-4o","Tools":[{tool}]}}"#).into_bytes(), "tools"));
                bodies.push((format!(r#"{{"model":"gpt-4o","toolſ":[{tool}]}}"#).into_bytes(), "tools"));
            }
        }
        for hidden in &unreadable {
            let cached =
                format!(r#"{{"model":"gpt-4o","system":[{{"cache_control":{{"ttl":"1h"}}}}],{hidden}}}"#);
            bodies.push((cached.into_bytes(), "cache_control"));
        }
        are_refused(&managed, &endpoint(&managed), "application/json", &bodies).await;
    });
}

#[test]
fn a_model_in_the_path_does_not_excuse_a_body_that_cannot_be_read() {
    run(async {
        let managed = Managed::start(&[]).await;
        let at = of_google(&managed);
        let search = r#""tools":[{"googleSearch":{}}]"#;
        let padded = format!(r#"{{"x":"{}",{search}}}"#, "x".repeat(256 * 1024));
        let bodies = [
            (format!("{{{search},}}").into_bytes(), "body"),
            (format!(r#"{{{search},"\ud800":1}}"#).into_bytes(), "body"),
            (format!("{{'a':1,{search}}}").into_bytes(), "body"),
            ([b"{\"a\":\"\xff\",", search.as_bytes(), b"}"].concat(), "body"),
            (padded.into_bytes(), "body"),
            (br#"{"tools":{"googleSearch":{}}}"#.to_vec(), "tools"),
            (br#"{"tools":"googleSearch"}"#.to_vec(), "tools"),
            (format!("{{{search}}}").into_bytes(), "tools"),
        ];
        are_refused(&managed, &at, "application/json", &bodies).await;
        let plain = [(format!("{{{search}}}").into_bytes(), "body")];
        for content_type in ["text/plain", "application/x-www-form-urlencoded", ""] {
            are_refused(&managed, &at, content_type, &plain).await;
        }
        // What can be read is sent, and with the caller's own key everything is.
        let merchant = Merchant::funded("10").await;
        let plain = post(
            &at,
            "application/json; charset=utf-8",
            r#"{"contents":[],"tools":[{"functionDeclarations":[]}]}"#,
        );
        managed.send(&merchant.secret_key, plain).await.expect(200);
        let own = post(&at, "text/plain", format!("{{{search},}}")).header("x-goog-api-key", "theirs");
        managed.send(&merchant.secret_key, own).await.expect(200);
        assert_eq!(at.calls().len(), 2);
    });
}

#[test]
fn a_body_that_can_be_read_as_asking_for_no_usage_is_refused() {
    run(async {
        let managed = Managed::start(&[]).await;
        let at = managed.openai.endpoint_ending("/v1/chat/completions", |_| json(200, &json!({})));
        let bodies = [
            (
                r#""stream":true,"stream_options":{"include_usage":false,"include_usage":true}"#,
                "stream_options",
            ),
            (
                r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#,
                "stream_options",
            ),
            (
                r#""stream":true,"stream_options":{"include_usage":true,"Include_Usage":false}"#,
                "stream_options",
            ),
            (
                r#""stream":true,"stream_options":{"include_usage":true},"stream_options":null"#,
                "stream_options",
            ),
            (r#""stream":false,"stream":true"#, "stream"),
        ]
        .map(|(members, member)| {
            (format!(r#"{{"model":"gpt-4o","messages":[],{members}}}"#).into_bytes(), member)
        });
        are_refused(&managed, &at, "application/json", &bodies).await;
    });
}

/// What a reader of JSON refuses, as members of a function beside a tool that is priced apart.
fn unreadable_functions() -> [String; 3] {
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    [r#""description":"\ud800""#.to_owned(), r#""maximum":1e999"#.to_owned(), format!(r#""p":{deep}"#)]
        .map(|hidden| format!(r#"{{"type":"function","name":"f",{hidden}}}"#))
}

/// A call at `target` with the body of these members.
fn call(target: &str, members: &str) -> Request {
    let body = format!("{{{members}}}");
    Request::new("POST", target)
        .header("Content-Type", "application/json")
        .body(Body::Whole(body.into_bytes()))
}

/// The members of calls that ask for nothing apart, in each client's format.
fn by_messages(model: &str) -> String {
    format!(r#""model":"{model}","max_tokens":5,"messages":[{{"role":"user","content":"Hi"}}]"#)
}

fn by_responses(model: &str) -> String {
    format!(r#""model":"{model}","max_output_tokens":5,"input":"Hi""#)
}

const BY_GOOGLE: &str =
    r#""contents":[{"role":"user","parts":[{"text":"Hi"}]}],"generationConfig":{"maxOutputTokens":5}"#;

/// An endpoint of each format: Chat Completions, Responses, embeddings, Messages and Google's. All answer as the first
/// does.
fn of_each_format(managed: &Managed) -> [Endpoint; 5] {
    let at = |provider: &Provider, path: &str| {
        provider.endpoint_at(path, |_| {
            let message = json!({"role": "assistant", "content": "Hello."});
            let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
            let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
            json(200, &json!({"id": "c-1", "model": "gpt-4o", "choices": choices, "usage": usage}))
        })
    };
    [
        at(&managed.openai, "/v1/chat/completions"),
        at(&managed.openai, "/v1/responses"),
        at(&managed.openai, "/v1/embeddings"),
        at(&managed.anthropic, "/v1/messages"),
        at(&managed.google, "/v1beta/models/gemini-2.5-flash:generateContent"),
    ]
}

/// Sends each call, which must be refused with this code for this path before anything is recorded or sent.
async fn are_refused_there(
    managed: &Managed,
    merchant: &Merchant,
    endpoints: &[Endpoint],
    calls: Vec<(Request, &str, Value)>,
) {
    let before = merchant.events().await.len();
    for (request, code, path) in calls {
        let shown = format!("{request:?}");
        let refused = managed.send(&merchant.secret_key, request).await;
        assert_eq!(refused.status, 400, "{shown}: {}", refused.text());
        let error = refused.refused(400, code);
        assert_eq!(error["issues"][0]["path"], path, "{shown}: {error}");
    }
    assert!(endpoints.iter().all(|endpoint| endpoint.calls().is_empty()), "a provider was called");
    assert_eq!(merchant.events().await.len(), before, "a refused call is recorded");
    merchant.nothing_is_held().await;
}

/// F7 at the model and rewrite endpoints, where client and provider speak one format and the body passes as it is.
#[test]
fn what_is_priced_apart_is_refused_in_each_clients_format_where_the_body_passes_unchanged() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("10").await;
        let endpoints = of_each_format(&managed);
        let [chat, responses, _, messages, google] = &endpoints;
        let (gpt, haiku) = ("gpt-4o", "claude-haiku-4-5");
        let mut calls = Vec::new();
        for (target, members, tool) in [
            ("/v1/chat/completions".to_owned(), by_messages(gpt), r#"{"type":"web_search_preview"}"#),
            ("/v1/responses".to_owned(), by_responses(gpt), r#"{"type":"code_interpreter"}"#),
            ("/v1/messages".to_owned(), by_messages(haiku), r#"{"type":"web_search_20250305","name":"w"}"#),
            (
                format!("/v1/rewrite/openai/{}", chat.url),
                by_messages(gpt),
                r#"{"type":"function","type":"web_search"}"#,
            ),
            (
                format!("/v1/rewrite/openai/{}", responses.url),
                by_responses(gpt),
                r#"{"type":"image_generation"}"#,
            ),
            (
                format!("/v1/rewrite/anthropic/{}", messages.url),
                by_messages(haiku),
                r#"{"type":"function","TYPE":"code_execution_20250825"}"#,
            ),
            (format!("/v1/rewrite/google/{}", google.url), BY_GOOGLE.to_owned(), r#"{"googleSearch":{}}"#),
        ] {
            let mut tools = vec![format!("[{tool}]")];
            for function in unreadable_functions() {
                tools.extend([format!("[{tool},{function}]"), format!("[{function},{tool}]")]);
            }
            for tools in tools {
                calls.push((format!(r#"{members},"tools":{tools}"#), target.clone(), "tools"));
            }
            let cached = r#""x":[{"cache_control":{"type":"ephemeral","ttl":"1h"}}]"#;
            for cached in [cached.to_owned(), format!(r#"{cached},"y":"\ud800""#)] {
                calls.push((format!("{members},{cached}"), target.clone(), "cache_control"));
            }
            for (member, name) in [
                (r#""service_tier":"priority""#, "service_tier"),
                (r#""Speed":"fast""#, "speed"),
                (r#""web_search_options":{}"#, "web_search_options"),
            ] {
                calls.push((format!("{members},{member}"), target.clone(), name));
            }
        }
        let embedding = r#""model":"text-embedding-3-small","input":"Hi""#;
        let tier = format!(r#"{embedding},"service_tier":"priority""#);
        calls.push((tier, "/v1/embeddings".to_owned(), "service_tier"));
        let calls = calls
            .into_iter()
            .map(|(members, target, member)| (call(&target, &members), "validation_error", json!([member])));
        are_refused_there(&managed, &merchant, &endpoints, calls.collect()).await;
    });
}

/// F7 where the body is converted: a tool or a member that is priced apart is not dropped on the way; the call is refused.
/// A cache for an hour is not asked for in another format, so the call is one without it.
#[test]
fn what_is_priced_apart_is_refused_in_each_clients_format_where_the_body_is_converted() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("10").await;
        let endpoints = of_each_format(&managed);
        let [chat, _, _, messages, _] = &endpoints;
        let (gpt, haiku, gemini) = ("gpt-4o", "claude-haiku-4-5", "gemini-2.5-flash");
        let searches = r#"{"type":"web_search_20250305","name":"w"}"#;
        let googles = format!("/v1/rewrite/google/{}/v1beta/models/gpt-4o:generateContent", chat.url);
        let mut calls = Vec::new();
        for (target, members, tool, member) in [
            (
                "/v1/chat/completions".to_owned(),
                by_messages(haiku),
                r#"{"type":"web_search_preview"}"#,
                "type",
            ),
            ("/v1/responses".to_owned(), by_responses(haiku), r#"{"type":"code_interpreter"}"#, "type"),
            ("/v1/messages".to_owned(), by_messages(gpt), searches, "type"),
            ("/v1/messages".to_owned(), by_messages(gemini), searches, "type"),
            (
                format!("/v1/rewrite/openai/{}", messages.url),
                by_messages(haiku),
                r#"{"type":"code_interpreter"}"#,
                "type",
            ),
            (format!("/v1/rewrite/anthropic/{}", chat.url), by_messages(gpt), searches, "type"),
            (googles, BY_GOOGLE.to_owned(), r#"{"googleSearch":{}}"#, "googleSearch"),
        ] {
            let plain = call(&target, &format!(r#"{members},"tools":[{tool}]"#));
            calls.push((plain, "conversion_unsupported", json!(["tools", "0", member])));
            for function in unreadable_functions() {
                for tools in [format!("[{tool},{function}]"), format!("[{function},{tool}]")] {
                    let hidden = call(&target, &format!(r#"{members},"tools":{tools}"#));
                    calls.push((hidden, "validation_error", json!(["body"])));
                }
            }
            let options = call(&target, &format!(r#"{members},"web_search_options":{{}}"#));
            let name = if member == "googleSearch" { "webSearchOptions" } else { "web_search_options" };
            calls.push((options, "conversion_unsupported", json!([name])));
        }
        are_refused_there(&managed, &merchant, &endpoints, calls).await;

        let cached =
            r#""system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#;
        let request = call("/v1/messages", &format!("{},{cached}", by_messages(gpt)));
        managed.send(&merchant.secret_key, request).await.expect(200);
        let sent = String::from_utf8(chat.only_call().body.clone()).unwrap();
        assert!(!sent.contains("cache_control") && !sent.contains("ttl"), "{sent}");
    });
}
