//! Keys of this service that a caller puts where its model or its metadata belong: they are in nothing that is kept or
//! shown, and decide as they are.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{json as answer, whole};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

async fn spend_key(merchant: &Merchant, settings: Value) -> String {
    let mut body = settings;
    body["name"] = json!("a test's");
    let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
    made["key"].as_str().unwrap().to_owned()
}

/// That none of the keys is in an event of the merchant.
async fn is_recorded_nowhere(merchant: &Merchant, keys: &[&str]) {
    for event in merchant.events().await {
        for key in keys {
            assert!(!event.text.contains(key), "{}: {}", event.kind, event.text);
        }
    }
}

#[test]
fn a_key_as_a_model_or_in_metadata_is_masked_in_all_that_is_kept_and_reaches_the_provider_as_it_is() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let receiver = merchant.instance.provider.endpoint(|_| whole(200, &[], b""));
        let hook = json!({"url": receiver.url, "events": ["request.completed"]});
        merchant.post("/v1/webhooks", &hook).await.expect(201);
        let spend_key = spend_key(&merchant, json!({})).await;
        let keys = [spend_key.as_str(), merchant.secret_key.as_str()];
        // The provider repeats the model, and puts the key into what else is read of its answer.
        let usage = json!({"model": keys[0], "id": format!("of {}", keys[1]), "usage": {"tokens": 1}});
        let endpoint = merchant.instance.provider.endpoint(move |_| answer(200, &usage));
        let body = json!({"model": keys[0], "input": "x"});
        let metadata = json!({"note": format!("mine is {}", keys[1]), keys[0]: "v", "plain": "spk_1"});
        for credential in keys {
            let call =
                forward("POST", &endpoint.url).json(&body).header("x-service-metadata", metadata.to_string());
            let answered = merchant.send(credential, call).await;
            assert_eq!(answered.expect(200)["model"], keys[0], "an answer passes as it is");
            let shown = merchant.shown(&answered.request_id(), "completed").await;
            assert_eq!(shown["model"], "spk_****");
            assert_eq!(shown["response_id"], "of aks_test_****");
            let masked = json!({"note": "mine is aks_test_****", "spk_masked": "v", "plain": "spk_1"});
            assert_eq!(shown["metadata"], masked);
        }
        for call in endpoint.calls() {
            assert_eq!(call.body, body.to_string().into_bytes());
        }
        let report = json!({
            "request_id": "r", "model": keys[1], "response_id": keys[0], "metadata": metadata,
            "endpoint": format!("POST https://a.example/{}", keys[0]), "usage": {"tokens": 1},
            "provider": format!("of {}", keys[0]),
        });
        let made = merchant.post("/v1/requests", &report).await.expect(201);
        assert_eq!((&made["model"], &made["response_id"]), (&json!("aks_test_****"), &json!("spk_****")));
        assert_eq!(made["endpoint"], "POST https://a.example/spk_****");
        assert_eq!(made["provider"], "of spk_****");
        assert_eq!(made["metadata"]["note"], "mine is aks_test_****");
        assert_eq!(merchant.get("/v1/requests/r").await.expect(200), made);

        is_recorded_nowhere(&merchant, &keys).await;
        eventually("the calls are delivered", async || (receiver.calls().len() >= 2).then_some(())).await;
        for delivery in receiver.calls() {
            let text = String::from_utf8(delivery.body.clone()).unwrap();
            assert!(!keys.iter().any(|key| text.contains(key)), "{text}");
        }
        let list = merchant.get("/v1/requests").await.text();
        assert!(!keys.iter().any(|key| list.contains(key)), "{list}");
    });
}

/// A name is kept up to 255 characters. What is left of a key at its end has no key's shape.
#[test]
fn a_key_at_the_end_of_what_is_kept_of_a_long_model_is_masked() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let spend_key = spend_key(&merchant, json!({})).await;
        let begin = &spend_key[..12];
        let endpoint = merchant.instance.provider.endpoint(|_| answer(200, &json!({})));
        let rest = "x".repeat(300);
        for before in [219, 254 - spend_key.len(), 254 - begin.len(), 254] {
            let before = "m".repeat(before);
            let body = json!({"model": format!("{before}{spend_key}-{rest}"), "input": "x"});
            let answered = merchant.send(&spend_key, forward("POST", &endpoint.url).json(&body)).await;
            answered.expect(200);
            let shown = merchant.shown(&answered.request_id(), "completed").await;
            let expected: String = format!("{before}spk_****-{rest}").chars().take(255).collect();
            assert_eq!(shown["model"], expected);
        }
        is_recorded_nowhere(&merchant, &[begin]).await;
    });
}

#[test]
fn the_models_of_a_spend_key_and_an_idempotency_key_know_the_model_and_the_metadata_as_they_are() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer(200, &json!({})));
        let [one, two] = [spend_key(&merchant, json!({})).await, spend_key(&merchant, json!({})).await];
        let limited = spend_key(&merchant, json!({"allowed_models": [one]})).await;
        let call = |model: &str| forward("POST", &endpoint.url).json(&json!({"model": model}));
        merchant.send(&limited, call(&one)).await.expect(200);
        for other in [two.as_str(), "spk_****"] {
            merchant.send(&limited, call(other)).await.refused(403, "model_not_allowed");
        }
        // Calls that are recorded alike are not alike.
        let with = |key: &str| -> Request {
            let metadata = json!({"note": key}).to_string();
            call("m").header("x-service-metadata", metadata).header("idempotency-key", "k")
        };
        merchant.send(&merchant.secret_key, with(&one)).await.expect(200);
        merchant.send(&merchant.secret_key, with(&two)).await.refused(422, "idempotency_key_reused");
        merchant.send(&merchant.secret_key, with(&one)).await.expect(200);
        assert_eq!(endpoint.calls().len(), 2);
    });
}

/// A provider key in the URL: under the names that providers use, under another one by its shape, and encoded.
#[test]
fn a_provider_key_in_the_url_is_masked_in_all_that_is_kept_and_reaches_the_provider_as_it_is() {
    const SECRET: &str = "sk-proj-Zq3vN8xK2mT5wR7yB1cD4fG6hJ9kL0pS";
    const PLAIN: &str = "hunter2hunter2";
    run(async {
        let merchant = Merchant::funded("10").await;
        let usage = json!({"usage": {"tokens": 1}});
        let endpoint = merchant.instance.provider.endpoint(move |_| answer(200, &usage));
        let escaped = SECRET.replace("sk-", "%73%6B-");
        let queries = [
            format!("key={PLAIN}"),
            format!("api-version=1&API_Key={PLAIN}&x=1"),
            format!("%6Bey={PLAIN}"),
            format!("x={SECRET}"),
            format!("x={escaped}"),
            format!("x={}", escaped.replace('%', "%25")),
            format!("{SECRET}=x"),
        ];
        for query in &queries {
            let call = forward("POST", &format!("{}?{query}", endpoint.url)).json(&json!({"input": "x"}));
            let answered = merchant.send(&merchant.secret_key, call).await;
            answered.expect(200);
            let shown = merchant.shown(&answered.request_id(), "completed").await;
            let shown = shown["endpoint"].as_str().unwrap().to_owned();
            assert!(shown.contains("****"), "{query} is shown as {shown}");
            for secret in [PLAIN, &SECRET[3..]] {
                assert!(!shown.contains(secret), "{query} is shown as {shown}");
            }
        }
        is_recorded_nowhere(&merchant, &[PLAIN, &SECRET[3..]]).await;
        let received: Vec<_> = endpoint.calls().iter().map(|call| call.target().to_owned()).collect();
        for (query, target) in queries.iter().zip(&received) {
            assert!(target.ends_with(&format!("?{query}")), "{query} reached the provider as {target}");
        }
        assert_eq!(received.len(), queries.len());
    });
}
