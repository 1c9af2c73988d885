//! Customers, meters, spend keys: the responses of creating and rotating them.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::json;

#[test]
fn a_customer_is_created_once_per_reference_id() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({
            "reference_id": "user/1 \u{1F600}", "name": "Ada King Lovelace", "email": "ada@example.com",
            "phone": "+491701234567", "metadata": {"plan": "gold"}, "unknown": [1],
        });
        let made = merchant.post("/v1/customers", &body).await.expect(201);
        assert!(made["customer_id"].as_str().unwrap().starts_with("con_"));
        assert_eq!(made["customer_id"], made["connection_id"]);
        assert_eq!(made["reference_id"], "user/1 \u{1F600}");
        assert_eq!(
            made["contact"],
            json!({"phone": "+491701234567", "email": "ada@example.com", "first_name": "Ada", "last_name": "King Lovelace"})
        );
        assert_eq!((&made["subscription"], &made["metadata"]), (&json!(null), &json!({"plan": "gold"})));
        assert!(made["created_at"].as_str().unwrap().ends_with('Z'));
        let again =
            merchant.post("/v1/customers", &json!({"reference_id": "user/1 \u{1F600}", "name": "Eve"})).await;
        assert_eq!(again.expect(200), made);
        for name in [made["customer_id"].as_str().unwrap(), "user/1 \u{1F600}"] {
            assert_eq!(merchant.get(&format!("/v1/customers/{}", encoded(name))).await.expect(200), made);
        }
        let other = Merchant::new().await;
        let theirs =
            other.post("/v1/customers", &json!({"reference_id": "user/1 \u{1F600}"})).await.expect(201);
        assert_ne!(theirs["customer_id"], made["customer_id"]);
        let bare = merchant.post("/v1/customers", &json!({})).await.expect(201);
        assert_eq!(bare["reference_id"], json!(null));
        assert_eq!(
            merchant.post("/v1/customers", &json!({"reference_id": "x".repeat(255)})).await.status,
            201
        );
        let events = merchant.events().await;
        let logged = events.iter().map(|event| event.text.as_str()).collect::<String>();
        for personal in ["Ada", "Lovelace", "ada@example.com", "+491701234567"] {
            assert!(!logged.contains(personal), "the log contains {personal}");
        }
    });
}

#[test]
fn concurrent_creations_of_one_reference_id_create_one_customer() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::new().await));
        let calls: Vec<_> = (0..40)
            .map(|number| {
                tokio::spawn(async move {
                    let request = Request::new("POST", "/v1/customers").json(&json!({"reference_id": "one"}));
                    request
                        .bearer(&merchant.secret_key)
                        .send(merchant.instance.gateway(number))
                        .await
                        .unwrap()
                })
            })
            .collect();
        let mut ids = std::collections::HashSet::new();
        let mut created = 0;
        for call in calls {
            let response = call.await.unwrap();
            assert!(matches!(response.status, 200 | 201), "{}", response.text());
            created += i32::from(response.status == 201);
            ids.insert(response.json()["customer_id"].as_str().unwrap().to_owned());
        }
        assert_eq!((ids.len(), created), (1, 1));
    });
}

#[test]
fn a_meter_shows_its_price_and_its_slug_is_unique() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({
            "name": "Chat Output!", "rate_type": "fixed", "tier_type": "tokens_1m", "token_basis": "output",
            "tiers": [{"start": "0", "rate": "5"}, {"start": 1_000_000, "rate": 3}],
            "base_cost_payer": "merchant", "service_charge_payer": "merchant",
        });
        let made = merchant.post("/v1/meters", &body).await.expect(201);
        assert_eq!(made["meter_id"], made["product_id"]);
        assert!(made["product_secret"].as_str().unwrap().starts_with("prds_"));
        assert_eq!(
            made["tiers"],
            json!([
                {"start": 0, "rate": "5.0000000000", "type": "tokens_1m"},
                {"start": 1_000_000, "rate": "3.0000000000", "type": "tokens_1m"},
            ])
        );
        for (name, value) in [
            ("name", "Chat Output!"),
            ("rate_type", "fixed"),
            ("tier_type", "tokens_1m"),
            ("token_basis", "output"),
            ("base_cost_payer", "merchant"),
            ("service_charge_payer", "merchant"),
        ] {
            assert_eq!(made[name], value);
        }
        let slug = made["meter_slug"].as_str().unwrap();
        assert!(
            !slug.is_empty()
                && slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        );
        let second = merchant.post("/v1/products", &body).await.expect(201);
        assert_ne!(second["meter_slug"], made["meter_slug"], "a generated slug is numbered until it is free");
        let mut given = body.clone();
        given["meter_slug"] = json!("mine");
        merchant.post("/v1/meters", &given).await.expect(201);
        merchant.post("/v1/meters", &given).await.refused(409, "meter_slug_conflict");
        Merchant::new().await.post("/v1/meters", &given).await.expect(201);
        let defaults = json!({"name": "d", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]});
        let made = merchant.post("/v1/meters", &defaults).await.expect(201);
        assert_eq!((&made["rate_type"], &made["token_basis"]), (&json!("fixed"), &json!("input+output")));
        assert_eq!(
            (&made["base_cost_payer"], &made["service_charge_payer"]),
            (&json!("wallet"), &json!("wallet"))
        );
    });
}

#[test]
fn a_spend_key_shows_its_raw_key_once_and_a_rotation_is_immediate() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let settings = json!({
            "name": "laptop", "allowed_models": ["a", "b"], "allowed_providers": null,
            "spend_limit": {"amount": "12.5", "cycle": "daily"}, "request_limit": {"count": 10, "cycle": "weekly"},
            "rate_limit": {"rpm": 60, "burst": 10}, "expires_at": "2090-01-01T00:00:00Z", "request_shape": "openai",
            "connection_id": customer.id,
        });
        let made = merchant.post("/v1/spend_keys", &settings).await.expect(201);
        let key = made["key"].as_str().unwrap();
        assert!(key.starts_with("spk_") && key.len() >= 36);
        let id = made["spend_key_id"].as_str().unwrap();
        let preview = made["key_preview"].as_str().unwrap();
        assert!(preview.ends_with("****") && key.starts_with(preview.trim_end_matches('*')), "{preview}");
        for path in ["/v1/manage/spend_keys", "/v1/spend_keys"] {
            let shown = merchant.get(&format!("{path}/{id}")).await.expect(200);
            assert_eq!(shown.get("key"), None, "not shown again");
            for (name, value) in [
                ("name", json!("laptop")),
                ("status", json!("active")),
                ("current_spend", json!("0.0000000000")),
                ("current_requests", json!(0)),
                ("allowed_models", json!(["a", "b"])),
                ("spend_limit", json!({"amount": "12.5000000000", "cycle": "daily"})),
                ("request_limit", json!({"count": 10, "cycle": "weekly"})),
                ("rate_limit", json!({"rpm": 60, "burst": 10})),
                ("key_preview", json!(preview)),
                ("wallet_id", made["wallet_id"].clone()),
                ("connection_id", json!(customer.id)),
            ] {
                assert_eq!(shown[name], value, "{name}");
            }
            assert!(shown["expires_at"].as_str().unwrap().starts_with("2090-01-01T00:00:00"));
        }
        let rotated =
            merchant.rest(Request::new("POST", format!("/v1/spend_keys/{id}/rotate"))).await.expect(200);
        let fresh = rotated["key"].as_str().unwrap();
        assert_ne!(fresh, key);
        assert_eq!(rotated["name"], "laptop");
        eventually("the new preview is shown", async || {
            let shown = merchant.get(&format!("/v1/manage/spend_keys/{id}")).await.expect(200);
            (shown["key_preview"] == rotated["key_preview"]).then_some(())
        })
        .await;
        let again = merchant
            .rest(Request::new("POST", format!("/v1/manage/spend_keys/{id}/rotate")))
            .await
            .expect(200);
        assert_ne!(again["key"], rotated["key"]);
        let own =
            merchant.post("/v1/manage/spend_keys", &json!({"name": "of the merchant"})).await.expect(201);
        assert_eq!(own["wallet_id"], merchant.wallet_id.as_str());
        let logged: String = merchant.events().await.iter().map(|event| event.text.clone()).collect();
        for raw in [key, fresh, &merchant.secret_key] {
            assert!(!logged.contains(raw), "the log contains a raw key");
        }
        let stored: String =
            merchant.log.states("spend_key").await.iter().map(|(_, body)| body.to_string()).collect();
        assert!(!stored.contains(key) && !stored.contains(fresh));
    });
}

#[test]
fn a_write_is_visible_to_the_next_read() {
    run(async {
        let merchant = Merchant::new().await;
        for number in 0..20 {
            let reference = format!("user-{number}");
            let made = merchant.post("/v1/customers", &json!({"reference_id": reference})).await.expect(201);
            let id = made["customer_id"].as_str().unwrap();
            merchant.get(&format!("/v1/customers/{id}")).await.expect(200);
            merchant.get(&format!("/v1/connections/{id}")).await.expect(200);
            let made = merchant.post("/v1/spend_keys", &json!({"name": reference})).await.expect(201);
            let id = made["spend_key_id"].as_str().unwrap();
            merchant.get(&format!("/v1/manage/spend_keys/{id}")).await.expect(200);
        }
    });
}
