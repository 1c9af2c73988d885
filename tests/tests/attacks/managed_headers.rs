//! Headers and parameters by which a caller would decide how a provider reads a call on a managed provider key, whom it
//! bills, or what its response leaves out.

use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use serde_json::json;

use farthing_tests::managed::Managed;

use super::endpoints::Endpoints;

const HEADERS: [&str; 12] = [
    "Content-Encoding",
    "X-HTTP-Method",
    "X-HTTP-Method-Override",
    "X-Method-Override",
    "OpenAI-Organization",
    "OpenAI-Project",
    "X-Goog-FieldMask",
    "X-Goog-User-Project",
    "X-HF-Bill-To",
    "NVCF-Poll-Seconds",
    "Range",
    "Prefer",
];

#[test]
fn a_caller_decides_neither_the_reading_nor_the_account_of_a_managed_call() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let usage = json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1}});
        let endpoint =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| answer_json(200, &usage));
        let mut asked =
            forward("POST", &endpoint.url).json(&json!({"model": "gpt-4o", "max_tokens": 5, "messages": []}));
        for name in HEADERS {
            asked = asked.header(name, "x");
        }
        managed.send(&merchant.secret_key, asked.clone()).await.expect(200);
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        managed.send(&own, asked).await.expect(200);
        let calls = endpoint.calls();
        let [managed_call, own_call] = calls.as_slice() else { panic!("two calls") };
        for name in HEADERS {
            assert!(managed_call.head.all(name).is_empty(), "{name}");
            assert_eq!(own_call.head.all(name), ["x"], "{name} is the caller's on a key of its own");
        }
    });
}

/// The same at each endpoint that forwards, whatever the formats of the client and the provider are. `Accept` names a
/// form that is not read for its usage.
#[test]
fn headers_that_change_the_reading_or_the_account_of_a_managed_call_reach_no_provider_from_any_endpoint() {
    run(async {
        let endpoints = Endpoints::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        for call in endpoints.calls() {
            let mut asked = call.request.clone().header("Accept", "application/x-protobuf");
            for name in HEADERS {
                asked = asked.header(name, "x");
            }
            let target = call.target();
            endpoints.send(&asked.clone().bearer(&merchant.secret_key)).await.expect(200);
            let sent = call.reaches.calls().pop().unwrap();
            for name in HEADERS.into_iter().chain(["Accept"]) {
                assert!(sent.head.all(name).is_empty(), "{target}: {name}");
            }
            assert_eq!(sent.head.all("accept-encoding"), ["identity"], "{target}");
            assert_eq!(sent.head.all("authorization"), ["Bearer sk-managed-openai"], "{target}");
            // On a key of its own they are the caller's.
            endpoints.send(&asked.bearer(&own)).await.expect(200);
            let sent = call.reaches.calls().pop().unwrap();
            for name in ["X-HTTP-Method-Override", "X-HF-Bill-To", "Range", "Prefer", "Accept"] {
                assert_eq!(sent.head.all(name).len(), 1, "{target}: {name}");
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_caller_chooses_no_form_of_a_managed_response_that_is_not_read() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let usage = json!({"usage": {"prompt_tokens": 1, "completion_tokens": 1}});
        let endpoint =
            managed.openai.endpoint_ending("/v1/chat/completions", move |_| answer_json(200, &usage));
        let asked =
            forward("POST", &endpoint.url).json(&json!({"model": "gpt-4o", "max_tokens": 5, "messages": []}));
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        for (accept, passes) in [
            ("application/json", true),
            ("Text/Event-Stream, application/json;q=0.9, */*; q=0.1", true),
            ("application/x-protobuf", false),
            ("application/json, text/csv", false),
            ("", false),
            ("application/json\u{e9}", false),
        ] {
            for name in ["Accept", "X-Amzn-Bedrock-Accept"] {
                for (credential, is_managed) in [(&merchant.secret_key, true), (&own, false)] {
                    managed.send(credential, asked.clone().header(name, accept)).await.expect(200);
                    let call = endpoint.calls().pop().unwrap();
                    assert_eq!(!call.head.all(name).is_empty(), passes || !is_managed, "{name}: {accept}");
                }
            }
        }
    });
}

#[test]
fn a_caller_cannot_leave_the_usage_out_of_a_managed_response_of_google() {
    run(async {
        let managed = Managed::start(&[]).await;
        let merchant = Merchant::funded("100").await;
        let usage = json!({"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1}});
        let asked = json!({"contents": [], "generationConfig": {"maxOutputTokens": 5}});
        let path = "/v1beta/models/gemini-2.5-pro:generateContent";
        let endpoint = managed.google.endpoint_ending(path, move |_| answer_json(200, &usage));
        let call = |query: &str| forward("POST", &format!("{}?{query}", endpoint.url)).json(&asked);
        for query in [
            "fields=candidates",
            "%66ields=candidates",
            "$fields=candidates",
            "alt=proto",
            "alt=json&alt=proto",
            "alt=json&alt=sse",
            "$alt=proto",
            "callback=f",
            "unheard_of",
        ] {
            let refused = managed.send(&merchant.secret_key, call(query)).await;
            assert_eq!(
                refused.refused(400, "validation_error")["issues"][0]["path"],
                json!(["u"]),
                "{query}"
            );
            let mut beside = forward("POST", &endpoint.url).json(&asked);
            beside.target.extend(["&", query]);
            let beside = managed.send(&merchant.secret_key, beside).await;
            assert_eq!(beside.status, 400, "{query}");
        }
        assert!(endpoint.calls().is_empty());
        merchant.nothing_is_held().await;
        for query in ["alt=json", "alt=sse&alt=sse", "alt=sse&prettyPrint=false"] {
            managed.send(&merchant.secret_key, call(query)).await.expect(200);
        }
    });
}
