//! The provider that a call of the model endpoints and of rewrite reaches: by the lists of a spend key, on the caller's own
//! key, and under an idempotency key (completion.md sections 1, 11 and 12).

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::managed::Managed;
use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::{Call, Endpoint, json_text};
use farthing_tests::run;
use serde_json::{Value, json};

use super::providers::prices;

const CHAT: &str = "/v1/chat/completions";
const GENERATE: &str = "/v1beta/models/gemini-2.5-flash:generateContent";

/// A model that two providers offer.
const SHARED: &str = r#"{"provider":"openai","model":"shared","input_per_1m":"1","output_per_1m":"2"},{"provider":"mistral","model":"shared","input_per_1m":"3","output_per_1m":"4"}"#;

const COMPLETION: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"shared","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}"#;

const GENERATED: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello."}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":100,"totalTokenCount":1100},"modelVersion":"gemini-2.5-flash","responseId":"r-1"}"#;

fn body(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100})
}

fn chat(model: &str) -> Request {
    Request::new("POST", CHAT).json(&body(model))
}

fn rewrite(format: &str, url: &str, body: &Value) -> Request {
    Request::new("POST", format!("/v1/rewrite/{format}/{url}")).json(body)
}

/// A gateway with a managed key for Mistral, too, and endpoints of the two providers of the shared model.
async fn two_providers() -> (Managed, Endpoint, Endpoint) {
    let instance = Instance::shared().await;
    let key = instance.provider_key("mistral", "sk-managed-mistral");
    let managed = Managed::start(&[&prices(SHARED), &key]).await;
    let openai = managed.openai.endpoint_at(CHAT, |_| json_text(200, COMPLETION));
    let mistral = managed.mistral.endpoint_at(CHAT, |_| json_text(200, COMPLETION));
    (managed, openai, mistral)
}

fn sent(call: &Call) -> Value {
    serde_json::from_slice(&call.body).unwrap()
}

#[test]
fn of_several_providers_of_a_model_one_that_the_spend_key_allows_is_called() {
    run(async {
        let (managed, openai, mistral) = two_providers().await;
        let merchant = Merchant::funded("100").await;
        let with = async |providers: Value| {
            let settings = json!({"name": "a test's", "allowed_providers": providers});
            merchant.post("/v1/spend_keys", &settings).await.expect(201)["key"].as_str().unwrap().to_owned()
        };
        for (providers, name, cost) in [
            (json!(["mistral"]), "mistral", "0.0034000000"),
            (json!(["openai"]), "openai", "0.0012000000"),
            (json!(["mistral", "openai"]), "openai", "0.0012000000"),
            (json!(null), "openai", "0.0012000000"),
        ] {
            let key = with(providers.clone()).await;
            let before = (openai.calls().len(), mistral.calls().len());
            let response = managed.send(&key, chat("shared")).await;
            assert_eq!(response.status, 200, "{providers}: {}", response.text());
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["total_merchant_cost"], cost, "{providers}: {metered}");
            let reached = (openai.calls().len() - before.0, mistral.calls().len() - before.1);
            assert_eq!(reached, if name == "openai" { (1, 0) } else { (0, 1) }, "{providers}");
        }
        let (only_mistral, neither) = (with(json!(["mistral"])).await, with(json!(["anthropic"])).await);
        let before = (openai.calls().len(), mistral.calls().len());
        // A provider that is named is not exchanged for an allowed one.
        managed.send(&only_mistral, chat("openai/shared")).await.refused(403, "provider_not_allowed");
        managed.send(&neither, chat("shared")).await.refused(403, "provider_not_allowed");
        // A list of providers does not say whose the caller's own key is.
        let own = token(&json!({"spend_key": only_mistral, "provider_key": "sk-own"}));
        managed.send(&own, chat("shared")).await.refused(400, "validation_error");
        assert_eq!((openai.calls().len(), mistral.calls().len()), before, "refused calls reach no provider");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_model_of_several_providers_is_listed_once_by_the_name_that_leads_to_each() {
    run(async {
        let (managed, openai, mistral) = two_providers().await;
        let merchant = Merchant::funded("100").await;
        let only_mistral = json!({"name": "a test's", "allowed_providers": ["mistral"]});
        let only_mistral = merchant.post("/v1/spend_keys", &only_mistral).await.expect(201);
        for (key, expected) in [
            (merchant.secret_key.as_str(), &[("openai", "shared"), ("mistral", "mistral/shared")][..]),
            (only_mistral["key"].as_str().unwrap(), &[("mistral", "shared")]),
        ] {
            let listed = managed.send(key, Request::new("GET", "/v1/models")).await.expect(200);
            let models = listed["data"].as_array().unwrap().iter();
            let shared = models.filter(|model| model["id"].as_str().unwrap().ends_with("shared"));
            let mut shared: Vec<_> = shared
                .map(|model| (model["owned_by"].as_str().unwrap(), model["id"].as_str().unwrap()))
                .collect();
            shared.sort_by_key(|(_, id)| id.len());
            assert_eq!(shared, expected);
            for (owner, id) in shared {
                let before = (openai.calls().len(), mistral.calls().len());
                managed.send(key, chat(id)).await.expect(200);
                let reached = (openai.calls().len() - before.0, mistral.calls().len() - before.1);
                assert_eq!(reached, if owner == "openai" { (1, 0) } else { (0, 1) }, "{id}");
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn the_callers_own_key_for_google_arrives_at_google_in_its_own_slot_through_a_conversion() {
    run(async {
        let (managed, openai, mistral) = two_providers().await;
        let merchant = Merchant::funded("100").await;
        let google = managed.google.endpoint_at(GENERATE, |_| json_text(200, GENERATED));
        let own = token(&json!({"secret_key": merchant.secret_key, "provider_key": "google-own"}));
        let rewritten = || rewrite("openai", &google.url, &body("gemini-2.5-flash"));
        let in_a_header = rewritten().bearer(&merchant.secret_key).header("x-goog-api-key", "google-own");
        for request in [
            chat("gemini-2.5-flash").bearer(&own),
            chat("gemini-2.5-flash").header("x-goog-api-key", &own),
            chat("google/gemini-2.5-flash").header("x-api-key", &own),
            chat("google/gemini-2.5-flash").header("xi-api-key", &own),
            rewritten().bearer(&own),
            rewritten().header("x-goog-api-key", &own),
            in_a_header,
        ] {
            let response = request.clone().send(managed.address()).await.expect("the gateway answers");
            let answer = response.expect(200);
            assert_eq!(answer["choices"][0]["message"]["content"], "Hello.", "{request:?}: {answer}");
            let call = google.calls().pop().unwrap();
            assert_eq!(call.head.all("x-goog-api-key"), ["google-own"], "{request:?}");
            for slot in ["authorization", "x-api-key", "xi-api-key", "api-key"] {
                assert!(call.head.all(slot).is_empty(), "{request:?}: {slot}");
            }
            assert!(!call.target().contains("key"), "{}", call.target());
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["total_merchant_cost"], "0.0000000000", "the provider bills its owner");
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["provider_key_type"], "unmanaged");
        }
        assert_eq!(google.calls().len(), 7);
        // Of two providers of a model, the key could be either's.
        managed.send(&own, chat("shared")).await.refused(400, "validation_error");
        assert_eq!((openai.calls().len(), mistral.calls().len()), (0, 0));
    });
}

#[test]
fn an_idempotency_key_that_comes_again_with_another_model_or_route_is_refused() {
    run(async {
        let (managed, openai, mistral) = two_providers().await;
        let merchant = Merchant::funded("100").await;
        let key = &merchant.secret_key;
        let other = managed.openai.endpoint_ending(CHAT, |_| json_text(200, COMPLETION));
        let keyed = |request: Request, name: &str| request.header("Idempotency-Key", name);
        let google_body = json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]});
        let by_google = |url: &str, call: &str| {
            let url = format!("{url}/v1beta/models/{call}");
            rewrite("google", &url, &google_body)
        };
        let plain = &openai.url;
        for (name, first, others) in [
            (
                "by-model",
                chat("gpt-4o"),
                vec![chat("gpt-4o-mini"), chat("openai/gpt-4o"), chat("mistral/shared"), chat("shared")],
            ),
            (
                "by-url",
                rewrite("anthropic", plain, &body("gpt-4o")),
                vec![
                    rewrite("anthropic", plain, &body("gpt-4o-mini")),
                    rewrite("anthropic", &other.url, &body("gpt-4o")),
                    rewrite("anthropic", &mistral.url, &body("gpt-4o")),
                ],
            ),
            // The path of a Google client says what its body does not.
            (
                "by-google",
                by_google(plain, "gpt-4o:generateContent"),
                vec![
                    by_google(plain, "gpt-4o-mini:generateContent"),
                    by_google(plain, "gpt-4o:streamGenerateContent?alt=sse"),
                    by_google(&other.url, "gpt-4o:generateContent"),
                ],
            ),
        ] {
            let before = openai.calls().len();
            let response = managed.send(key, keyed(first.clone(), name)).await;
            assert_eq!(response.status, 200, "{name}: {}", response.text());
            for another in others {
                let target = another.target.clone();
                let again = managed.send(key, keyed(another, name)).await;
                assert_eq!(again.status, 422, "{name} {target}: {}", again.text());
                again.refused(422, "idempotency_key_reused");
            }
            let again = managed.send(key, keyed(first, name)).await;
            assert_eq!((again.status, &again.body), (200, &response.body), "{name}");
            assert_eq!(again.head.header("idempotency-replayed"), Some("true"), "{name}");
            assert_eq!(openai.calls().len(), before + 1, "{name}");
        }
        assert_eq!((other.calls().len(), mistral.calls().len()), (0, 0));
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_conversion_writes_the_output_limit_under_the_name_that_the_provider_reads() {
    run(async {
        let (managed, openai, mistral) = two_providers().await;
        let merchant = Merchant::funded("100").await;
        let settings = json!({"name": "a test's", "spend_limit": {"amount": "0.0012", "cycle": "total"}});
        let key = merchant.post("/v1/spend_keys", &settings).await.expect(201);
        let key = key["key"].as_str().unwrap();
        // The limit bounds the converted call. Without one the call does not fit.
        let unlimited = json!({"model": "mistral/shared", "input": "Hi"});
        let limited = json!({"model": "mistral/shared", "input": "Hi", "max_output_tokens": 100});
        let responses = |body: &Value| Request::new("POST", "/v1/responses").json(body);
        managed.send(key, responses(&unlimited)).await.refused(402, "spend_limit_exceeded");
        assert_eq!(mistral.calls().len(), 0);
        managed.send(key, responses(&limited)).await.expect(200);
        let sent_alone = |endpoint: &Endpoint, name: &str, other: &str| {
            let sent = sent(&endpoint.calls().pop().unwrap());
            assert_eq!((&sent[name], sent.get(other)), (&json!(100), None), "{sent}");
        };
        sent_alone(&mistral, "max_tokens", "max_completion_tokens");
        for (endpoint, name, other) in [
            (&openai, "max_completion_tokens", "max_tokens"),
            (&mistral, "max_tokens", "max_completion_tokens"),
        ] {
            let request = rewrite("anthropic", &endpoint.url, &body("shared"));
            managed.send(&merchant.secret_key, request).await.expect(200);
            sent_alone(endpoint, name, other);
        }
    });
}
