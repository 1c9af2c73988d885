//! The list of models: those with a price, for callers with a valid key.

use std::collections::BTreeSet;

use chrono::{Duration, SecondsFormat, Utc};
use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::{Merchant, encoded, token};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

#[test]
fn models_come_from_the_catalogue_filtered_by_the_spend_keys_lists() {
    run(async {
        let merchant = Merchant::new().await;
        let listed = merchant.get("/v1/models").await.expect(200);
        assert_eq!(listed["object"], "list");
        let models = listed["data"].as_array().unwrap();
        let gpt = models.iter().find(|model| model["id"] == "gpt-4o").unwrap();
        // 2026-11-20, the date of the catalogue.
        let expected =
            json!({"id": "gpt-4o", "object": "model", "created": 1_795_132_800, "owned_by": "openai"});
        assert_eq!(*gpt, expected);
        assert!(models.len() > 100);
        let ids: BTreeSet<_> = models.iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), models.len(), "no name is listed twice");
        for (settings, expected) in [
            (json!({"name": "k"}), models.len()),
            (json!({"name": "k", "allowed_models": ["gpt-4o", "gemini-2.5-pro", "nothing"]}), 2),
            (
                json!({"name": "k", "allowed_models": ["gpt-4o", "gemini-2.5-pro"], "allowed_providers": ["google"]}),
                1,
            ),
            (json!({"name": "k", "allowed_providers": []}), 0),
        ] {
            let key = merchant.post("/v1/spend_keys", &settings).await.expect(201);
            let request = Request::new("GET", "/v1/models").bearer(key["key"].as_str().unwrap());
            let listed = request.send(merchant.gateway()).await.unwrap().expect(200);
            assert_eq!(listed["data"].as_array().unwrap().len(), expected, "{settings}");
        }
        let nobody = Request::new("GET", "/v1/models").bearer("spk_nobodys");
        nobody.send(merchant.gateway()).await.unwrap().refused(401, "spend_key_invalid");
        let nobody = Request::new("GET", "/v1/models").send(merchant.gateway()).await.unwrap();
        nobody.refused(401, "auth_header_missing");
    });
}

#[test]
fn the_list_takes_keys_in_every_slot_and_form_that_the_model_endpoints_take() {
    run(async {
        let merchant = Merchant::new().await;
        let only = json!({"name": "k", "allowed_models": ["gpt-4o"]});
        let spend_key = merchant.post("/v1/spend_keys", &only).await.expect(201);
        let (secret, spend) = (merchant.secret_key.as_str(), spend_key["key"].as_str().unwrap());
        let list = || Request::new("GET", "/v1/models");
        let count = async |request: Request| {
            let listed = request.send(merchant.gateway()).await.unwrap().expect(200);
            listed["data"].as_array().unwrap().len()
        };
        let all = count(list().bearer(secret)).await;
        assert!(all > 100);
        let customer = merchant.customer("0").await;
        let tokens = [
            (secret.to_owned(), all),
            (spend.to_owned(), 1),
            (token(&json!({"secret_key": secret})), all),
            (token(&json!({"secret_key": secret, "customer_id": customer.id})), all),
            (token(&json!({"spend_key": spend, "provider_key": "sk-theirs"})), 1),
        ];
        for (credential, expected) in &tokens {
            for name in ["x-api-key", "x-goog-api-key", "xi-api-key", "api-key"] {
                assert_eq!(count(list().header(name, credential)).await, *expected, "{name}");
                let beside_anothers = list().header(name, credential).bearer("sk-theirs");
                assert_eq!(count(beside_anothers).await, *expected, "{name}");
            }
            assert_eq!(count(list().bearer(credential)).await, *expected);
            let in_query = Request::new("GET", format!("/v1/models?limit=7&key={}", encoded(credential)));
            assert_eq!(count(in_query).await, *expected);
        }
        // The first slot with a credential decides.
        assert_eq!(count(list().bearer(spend).header("x-api-key", secret)).await, 1);
        assert_eq!(count(list().header("x-api-key", secret).header("api-key", spend)).await, all);
        for (request, status, code) in [
            (list().header("x-api-key", "spk_nobodys"), 401, "spend_key_invalid"),
            (list().header("x-api-key", "aks_test_nobodys"), 401, "secret_key_invalid"),
            (list().header("x-api-key", "sk-theirs"), 400, "forward_token_json_invalid"),
            (list().bearer("sk-theirs"), 401, "secret_key_invalid"),
            (list().bearer(&token(&json!({"secret_key": 7}))), 400, "forward_token_json_invalid"),
            (list().bearer("spk_nobodys").header("x-api-key", secret), 401, "spend_key_invalid"),
        ] {
            request.send(merchant.gateway()).await.unwrap().refused(status, code);
        }
        // No other standard endpoint takes them.
        let wallet = Request::new("GET", "/v1/wallet").header("x-api-key", secret);
        wallet.send(merchant.gateway()).await.unwrap().refused(401, "auth_header_missing");
    });
}

async fn listed(merchant: &Merchant, key: &Value) -> Response {
    let request = Request::new("GET", "/v1/models").bearer(key["key"].as_str().unwrap());
    request.send(merchant.gateway()).await.unwrap()
}

#[test]
fn an_inactive_spend_key_lists_no_models_and_every_use_counts_against_its_limit() {
    run(async {
        let merchant = Merchant::new().await;
        let key = merchant.post("/v1/spend_keys", &json!({"name": "k"})).await.expect(201);
        let path = format!("/v1/spend_keys/{}", key["spend_key_id"].as_str().unwrap());
        let put = async |body: Value| merchant.rest(Request::new("PUT", &path).json(&body)).await.expect(200);
        let remaining = |answer: &Response| -> u32 {
            assert_eq!(answer.head.header("x-ratelimit-limit"), Some("1000"));
            answer.head.header("x-ratelimit-remaining").unwrap().parse().unwrap()
        };
        let first = listed(&merchant, &key).await;
        first.expect(200);
        assert!(remaining(&first) <= 999);

        put(json!({"status": "paused"})).await;
        let paused = listed(&merchant, &key).await;
        paused.refused(403, "spend_key_paused");
        assert!(remaining(&paused) < 1_000);
        put(json!({"status": "active"})).await;
        listed(&merchant, &key).await.expect(200);

        let soon = (Utc::now() + Duration::milliseconds(1_000)).to_rfc3339_opts(SecondsFormat::Millis, true);
        put(json!({"expires_at": soon})).await;
        let expired = eventually("the key expires", async || {
            let answer = listed(&merchant, &key).await;
            (answer.status != 200).then_some(answer)
        })
        .await;
        expired.refused(401, "spend_key_expired");
        assert_eq!(expired.head.header("x-ratelimit-limit"), None, "as with every 401");
        put(json!({"expires_at": null})).await;
        listed(&merchant, &key).await.expect(200);

        let customer = merchant.customer("0").await;
        let of_customer = json!({"name": "c", "customer_id": customer.id});
        let of_customer = merchant.post("/v1/spend_keys", &of_customer).await.expect(201);
        listed(&merchant, &of_customer).await.expect(200);
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        listed(&merchant, &of_customer).await.refused(401, "spend_key_invalid");
        merchant.delete(&path).await.expect(200);
        listed(&merchant, &key).await.refused(401, "spend_key_invalid");
    });
}
