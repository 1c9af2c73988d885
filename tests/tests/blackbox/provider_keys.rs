//! Where each built-in provider takes a token's `provider_key`, whatever slot carried the credential (`docs/providers.md`
//! names these tests).

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, encoded, forward, token};
use farthing_tests::provider::{json, json_text};
use farthing_tests::run;
use serde_json::json;

use super::providers::{Keys, gateway_with};
use super::rewrite::{COMPLETION, anthropic_body, rewrite};

const CARRIERS: [&str; 6] =
    ["Authorization", "x-api-key", "x-goog-api-key", "xi-api-key", "api-key", "?key="];

/// The headers in which providers take keys.
const SLOTS: [&str; 5] = ["authorization", "x-api-key", "x-goog-api-key", "xi-api-key", "api-key"];

const COMPATIBLE: [&str; 22] = [
    "openai",
    "deepseek",
    "mistral",
    "xai",
    "groq",
    "together",
    "fireworks",
    "cohere",
    "cerebras",
    "perplexity",
    "openrouter",
    "deepinfra",
    "nebius",
    "sambanova",
    "hyperbolic",
    "moonshot",
    "zai",
    "dashscope",
    "nvidia",
    "huggingface",
    "github",
    "vercel",
];

fn carried(request: Request, carrier: &str, credential: &str) -> Request {
    match carrier {
        "Authorization" => request.bearer(credential),
        "?key=" => Request { target: format!("{}&key={}", request.target, encoded(credential)), ..request },
        header => request.header(header, credential),
    }
}

#[test]
fn a_provider_key_goes_where_its_provider_takes_keys_whatever_carried_the_credential() {
    run(async {
        let names: Vec<&str> = COMPATIBLE.into_iter().chain(["anthropic", "google", "azure"]).collect();
        // Those that the fixture has at hosts of its own.
        let fixed = ["openai", "anthropic", "google", "mistral"];
        let others: Vec<&str> = names.iter().copied().filter(|name| !fixed.contains(name)).collect();
        let (managed, providers) = gateway_with(&others, Keys::None, &[]).await;
        let merchant = Merchant::funded("1").await;
        let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let provider = |name: &str| match name {
            "openai" => &managed.openai,
            "anthropic" => &managed.anthropic,
            "google" => &managed.google,
            "mistral" => &managed.mistral,
            name => &providers[others.iter().position(|other| *other == name).unwrap()],
        };
        let bearer = ("authorization", "Bearer sk-theirs");
        let mut cases: Vec<_> = COMPATIBLE.map(|name| (name, "/v1/chat/completions", bearer)).to_vec();
        cases.extend([
            ("anthropic", "/v1/messages", ("x-api-key", "sk-theirs")),
            ("google", "/v1beta/models/m:generateContent", ("x-goog-api-key", "sk-theirs")),
            ("google", "/v1beta/openai/chat/completions", bearer),
            ("azure", "/openai/deployments/d/chat/completions", ("api-key", "sk-theirs")),
        ]);
        for (name, path, (slot, value)) in cases {
            let endpoint = provider(name).endpoint_ending(path, |_| json(200, &json!({})));
            for carrier in CARRIERS {
                let request = carried(forward("GET", &endpoint.url), carrier, &credential);
                let response = request.send(managed.address()).await.unwrap();
                response.expect(200);
                let call = endpoint.calls().pop().unwrap();
                for known in SLOTS {
                    let expected: &[&str] = if known == slot { &[value] } else { &[] };
                    assert_eq!(call.head.all(known), expected, "{name}{path} by {carrier}: {known}");
                }
                assert_eq!(call.target(), endpoint.path, "{name} by {carrier}");
                let shown = merchant.shown(&response.request_id(), "completed").await;
                assert_eq!(shown["provider_key_type"], "unmanaged", "{name}");
                assert_eq!(shown["provider"], name);
            }
        }
    });
}

#[test]
fn a_provider_key_for_an_unknown_provider_keeps_the_slot_of_the_credential() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        for carrier in CARRIERS {
            let request = carried(forward("GET", &endpoint.url), carrier, &credential);
            request.send(merchant.gateway()).await.unwrap().expect(200);
            let call = endpoint.calls().pop().unwrap();
            let (slot, value) = match carrier {
                "Authorization" => ("authorization", "Bearer sk-theirs"),
                "?key=" => ("", ""),
                header => (header, "sk-theirs"),
            };
            for known in SLOTS {
                let expected: &[&str] = if known == slot { &[value] } else { &[] };
                assert_eq!(call.head.all(known), expected, "{carrier}: {known}");
            }
            let target = match carrier {
                "?key=" => format!("{}?key=sk-theirs", endpoint.path),
                _ => endpoint.path.clone(),
            };
            assert_eq!(call.target(), target, "{carrier}");
        }
    });
}

#[test]
fn a_provider_key_is_put_into_no_url_by_rewrite_and_a_callers_own_key_in_the_query_passes() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant
            .instance
            .provider
            .endpoint_ending("/v1/chat/completions", |_| json_text(200, COMPLETION));
        let credential = token(&json!({"secret_key": merchant.secret_key, "provider_key": "sk-theirs"}));
        let call = || rewrite("anthropic", &endpoint.url, &anthropic_body("m"));
        let with_query = |request: Request, query: &str| Request {
            target: format!("{}?{query}", request.target),
            ..request
        };
        for carrier in CARRIERS {
            let request = match carrier {
                "Authorization" => call().bearer(&credential),
                "?key=" => with_query(call(), &format!("key={}", encoded(&credential))),
                header => call().header(header, credential.as_str()),
            };
            let response = request.send(merchant.gateway()).await.unwrap();
            assert_eq!(response.expect(200)["content"][0]["text"], "Hello.", "{carrier}");
            let received = endpoint.calls().pop().unwrap();
            let (slot, value) = match carrier {
                "Authorization" | "?key=" => ("authorization", "Bearer sk-theirs"),
                header => (header, "sk-theirs"),
            };
            for known in SLOTS {
                let expected: &[&str] = if known == slot { &[value] } else { &[] };
                assert_eq!(received.head.all(known), expected, "{carrier}: {known}");
            }
            assert_eq!(received.target(), endpoint.path, "{carrier}");
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(
                (&shown["provider"], &shown["provider_key_type"], &shown["endpoint"]),
                (&json!("other"), &json!("unmanaged"), &json!(format!("POST {}", endpoint.url))),
                "{carrier}"
            );
            // Its usage is read in the standard object alone, which knows no `prompt_tokens`.
            assert_eq!(shown["model_usage"]["total_tokens"], 0, "{carrier}: {shown}");
        }
        // The credential of a plain key is taken from the query, too, and nothing takes its place.
        // `beta` is of Anthropic's clients alone.
        let request = with_query(call(), &format!("beta=true&of=theirs&key={}", merchant.secret_key));
        request.send(merchant.gateway()).await.unwrap().expect(200);
        let received = endpoint.calls().pop().unwrap();
        assert_eq!(received.target(), format!("{}?of=theirs", endpoint.path));
        assert!(SLOTS.iter().all(|slot| received.head.all(slot).is_empty()), "{:?}", received.head);
        // A key that is none of this service's is the caller's own; it reaches the provider, and no record.
        let request = with_query(call().bearer(&merchant.secret_key), "key=sk-of-their-own-0123456789abcdef");
        let response = request.send(merchant.gateway()).await.unwrap();
        response.expect(200);
        let received = endpoint.calls().pop().unwrap();
        assert_eq!(received.target(), format!("{}?key=sk-of-their-own-0123456789abcdef", endpoint.path));
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert!(!shown.to_string().contains("sk-of-their-own"), "{shown}");
        // A credential of this service in the query beside another one is refused.
        let request = with_query(call().bearer(&credential), &format!("token={}", merchant.secret_key));
        request.send(merchant.gateway()).await.unwrap().refused(400, "forward_url_invalid");
        assert_eq!(endpoint.calls().len(), CARRIERS.len() + 2);
        merchant.nothing_is_held().await;
    });
}
