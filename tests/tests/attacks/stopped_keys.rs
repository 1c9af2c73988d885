//! A spend key that is paused or has expired gets nothing, stored responses included.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use serde_json::{Value, json};

#[test]
fn a_stopped_key_gets_no_stored_response() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let endpoint =
            merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"secret": "of the call"})));
        let now = merchant.post("/v1/test_clock", &json!({"advance_seconds": 1})).await.expect(200);
        let now: chrono::DateTime<chrono::Utc> = now["now"].as_str().unwrap().parse().unwrap();
        let soon = now + chrono::Duration::hours(1);
        let changed = async |id: &str, changes: Value| {
            let change = Request::new("PUT", format!("/v1/spend_keys/{id}")).json(&changes);
            merchant.rest(change).await.expect(200);
        };
        let mut keys = Vec::new();
        for owner in [json!({}), json!({"connection_id": customer.id})] {
            let mut body = json!({"name": "k", "expires_at": soon});
            body.as_object_mut().unwrap().extend(owner.as_object().unwrap().clone());
            let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
            keys.push((
                made["spend_key_id"].as_str().unwrap().to_owned(),
                made["key"].as_str().unwrap().to_owned(),
            ));
        }
        let token =
            |key: &str| farthing_tests::merchant::token(&json!({"spend_key": key, "provider_key": "p"}));
        let call = async |credential: &str, gateway: usize| {
            let call = forward("POST", &endpoint.url)
                .header("Idempotency-Key", format!("once {}", credential.len()))
                .json(&json!({}));
            call.bearer(credential).send(merchant.instance.gateway(gateway)).await.unwrap()
        };
        for (id, key) in &keys {
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
            changed(id, json!({"status": "paused"})).await;
            for gateway in [0, 1] {
                call(key, gateway).await.refused(403, "spend_key_paused");
                call(&token(key), gateway).await.refused(403, "spend_key_paused");
            }
            changed(id, json!({"status": "active"})).await;
            assert!(call(key, 0).await.head.header("idempotency-replayed").is_some(), "active again");
        }
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 3600})).await.expect(200);
        for (_, key) in &keys {
            for gateway in [0, 1] {
                call(key, gateway).await.refused(401, "spend_key_expired");
                call(&token(key), gateway).await.refused(401, "spend_key_expired");
            }
        }
    });
}
