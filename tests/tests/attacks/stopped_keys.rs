//! A spend key that is paused or has expired gets nothing, stored responses included.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use serde_json::{Value, json};

use super::endpoints::{Endpoints, SAID};

struct SpendKey {
    id: String,
    key: String,
}

/// A key that expires then, with these settings.
async fn spend_key(merchant: &Merchant, expires_at: &Value, settings: Value) -> SpendKey {
    let mut body = settings;
    body["name"] = json!("a test's");
    body["expires_at"] = expires_at.clone();
    let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    SpendKey { id: text("spend_key_id"), key: text("key") }
}

/// An hour from now, by the merchant's clock.
async fn in_an_hour(merchant: &Merchant) -> Value {
    let now = merchant.post("/v1/test_clock", &json!({"advance_seconds": 1})).await.expect(200);
    let now: chrono::DateTime<chrono::Utc> = now["now"].as_str().unwrap().parse().unwrap();
    json!(now + chrono::Duration::hours(1))
}

async fn set_status(merchant: &Merchant, id: &str, status: &str) {
    let change = Request::new("PUT", format!("/v1/spend_keys/{id}")).json(&json!({"status": status}));
    merchant.rest(change).await.expect(200);
}

/// A token with the spend key, and a provider's own key.
fn token(key: &str) -> String {
    farthing_tests::merchant::token(&json!({"spend_key": key, "provider_key": "p"}))
}

#[test]
fn a_stopped_key_gets_no_stored_response() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let endpoint =
            merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"secret": "of the call"})));
        let expires_at = in_an_hour(&merchant).await;
        let mut keys = Vec::new();
        for owner in [json!({}), json!({"connection_id": customer.id})] {
            keys.push(spend_key(&merchant, &expires_at, owner).await);
        }
        let call = async |credential: &str, gateway: usize| {
            let call = forward("POST", &endpoint.url)
                .header("Idempotency-Key", format!("once {}", credential.len()))
                .json(&json!({}));
            call.bearer(credential).send(merchant.instance.gateway(gateway)).await.unwrap()
        };
        for SpendKey { id, key } in &keys {
            for credential in [key.clone(), token(key)] {
                for (gateway, replayed) in [(0, false), (0, true), (1, true)] {
                    let answered = call(&credential, gateway).await;
                    assert_eq!(answered.expect(200)["secret"], "of the call");
                    assert_eq!(
                        answered.head.header("idempotency-replayed").is_some(),
                        replayed,
                        "{credential}"
                    );
                    if credential != *key {
                        break;
                    }
                }
            }
            set_status(&merchant, id, "paused").await;
            for gateway in [0, 1] {
                call(key, gateway).await.refused(403, "spend_key_paused");
                call(&token(key), gateway).await.refused(403, "spend_key_paused");
            }
            set_status(&merchant, id, "active").await;
            assert!(call(key, 0).await.head.header("idempotency-replayed").is_some(), "active again");
        }
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 3600})).await.expect(200);
        for SpendKey { key, .. } in &keys {
            for gateway in [0, 1] {
                call(key, gateway).await.refused(401, "spend_key_expired");
                call(&token(key), gateway).await.refused(401, "spend_key_expired");
            }
        }
    });
}

#[test]
fn a_stopped_key_gets_no_stored_response_at_any_endpoint() {
    run(async {
        let endpoints = Endpoints::start(&[("Content-Type", "application/json")]).await;
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let expires_at = in_an_hour(&merchant).await;
        let mut calls = Vec::new();
        for owner in [json!({}), json!({"connection_id": customer.id})] {
            for shape in ["openai", "anthropic"] {
                let mut settings = owner.clone();
                settings["request_shape"] = json!(shape);
                let key = spend_key(&merchant, &expires_at, settings).await;
                let mut of_key = Vec::new();
                for call in endpoints.calls().into_iter().filter(|call| call.shape() == shape) {
                    for credential in [key.key.clone(), token(&key.key)] {
                        // Both ways of forward have one scope.
                        let once = format!("{} {}", call.target(), credential.len());
                        let request = call.request.clone().header("Idempotency-Key", once);
                        of_key.push(request.bearer(&credential));
                    }
                }
                calls.push((key, of_key));
            }
        }
        for (key, of_key) in &calls {
            for request in of_key {
                for replayed in [false, true] {
                    let response = endpoints.send(request).await;
                    assert_eq!(response.status, 200, "{}: {}", request.target, response.text());
                    assert!(response.text().contains(SAID), "{}: {}", request.target, response.text());
                    let is_replayed = response.head.header("idempotency-replayed").is_some();
                    assert_eq!(is_replayed, replayed, "{}", request.target);
                }
            }
            set_status(&merchant, &key.id, "paused").await;
            for request in of_key {
                endpoints.send(request).await.refused(403, "spend_key_paused");
            }
            set_status(&merchant, &key.id, "active").await;
            for request in of_key {
                let response = endpoints.send(request).await;
                assert!(response.head.header("idempotency-replayed").is_some(), "{}", request.target);
            }
        }
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 3600})).await.expect(200);
        for (_, of_key) in &calls {
            for request in of_key {
                endpoints.send(request).await.refused(401, "spend_key_expired");
            }
        }
        let made: usize = calls.iter().map(|(_, of_key)| of_key.len()).sum();
        assert_eq!(endpoints.received(), made);
    });
}
