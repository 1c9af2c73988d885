//! The list of models: those with a price, for callers with a valid key.

use chrono::{Duration, SecondsFormat, Utc};
use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::Merchant;
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
