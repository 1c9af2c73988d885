//! Webhooks as resources: created, shown, changed, deleted; invalid ones are refused with the path of the field.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, deleted};
use farthing_tests::run;
use serde_json::{Value, json};

const URL: &str = "https://receiver.example/hooks?from=farthing";

fn without(mut shown: Value, name: &str) -> Value {
    shown.as_object_mut().unwrap().remove(name);
    shown
}

#[test]
fn a_webhook_is_created_shown_changed_and_deleted() {
    run(async {
        let merchant = Merchant::new().await;
        let made = merchant.post("/v1/webhooks", &json!({"url": URL})).await.expect(201);
        let id = made["webhook_id"].as_str().unwrap();
        assert!(id.starts_with("wh_"), "{made}");
        let secret = made["webhook_secret"].as_str().unwrap();
        assert!(secret.starts_with("whsec_") && secret.len() == 6 + 32, "{secret}");
        assert_eq!(
            (&made["url"], &made["events"], &made["enabled"]),
            (&json!(URL), &Value::Null, &json!(true))
        );

        let path = format!("/v1/webhooks/{id}");
        let shown = merchant.get(&path).await.expect(200);
        assert_eq!(shown, without(made.clone(), "webhook_secret"), "the secret is shown once");

        let wanted = json!({"url": "http://other.example", "events": ["request.completed", "customer.created"],
                             "enabled": false, "unknown": 1});
        let changed = merchant.patch(&path, &wanted).await.expect(200);
        assert_eq!(changed["url"], "http://other.example");
        assert_eq!(changed["events"], json!(["customer.created", "request.completed"]));
        assert_eq!((&changed["enabled"], &changed["created_at"]), (&json!(false), &made["created_at"]));
        assert_eq!(merchant.get(&path).await.expect(200), changed);
        assert_eq!(
            merchant.patch(&path, &json!({})).await.expect(200),
            changed,
            "absent members do not change"
        );
        let cleared = merchant.patch(&path, &json!({"events": null})).await.expect(200);
        assert_eq!((&cleared["events"], &cleared["url"]), (&Value::Null, &changed["url"]));

        assert_eq!(merchant.delete(&path).await.expect(200), deleted(id));
        merchant.get(&path).await.refused(404, "webhook_not_found");
        merchant.patch(&path, &json!({})).await.refused(404, "webhook_not_found");
        merchant.delete(&path).await.refused(404, "webhook_not_found");
        merchant.get(&format!("{path}/deliveries")).await.refused(404, "webhook_not_found");
    });
}

#[test]
fn a_merchant_has_at_most_three_webhooks_listed_newest_first() {
    run(async {
        let merchant = Merchant::new().await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            let made = merchant.post("/v1/webhooks", &json!({"url": URL})).await.expect(201);
            ids.insert(0, made["webhook_id"].as_str().unwrap().to_owned());
        }
        merchant.post("/v1/webhooks", &json!({"url": URL})).await.refused(400, "webhook_limit_reached");
        for limit in [1, 2, 3, 10] {
            let listed = merchant.pages("/v1/webhooks", limit).await;
            let listed: Vec<_> = listed.iter().map(|shown| shown["webhook_id"].as_str().unwrap()).collect();
            assert_eq!(listed, ids);
        }
        // The cursor of a deleted webhook stays valid.
        merchant.delete(&format!("/v1/webhooks/{}", ids[1])).await.expect(200);
        let page = merchant.get(&format!("/v1/webhooks?cursor={}", ids[1])).await.expect(200);
        assert_eq!(page["data"].as_array().unwrap().len(), 1);
        assert_eq!(page["data"][0]["webhook_id"], ids[2].as_str());
        for cursor in ["wh_01ARZ3NDEKTSV4RRFFQ69G5FAV", "wh_", "x"] {
            merchant.get(&format!("/v1/webhooks?cursor={cursor}")).await.refused(400, "cursor_invalid");
        }
        merchant.post("/v1/webhooks", &json!({"url": URL})).await.expect(201);
    });
}

#[test]
fn an_invalid_webhook_is_refused_with_the_path_of_the_wrong_field() {
    run(async {
        let merchant = Merchant::new().await;
        for (body, path) in [
            (json!({}), "url"),
            (json!({"url": 5}), "url"),
            (json!({"url": "ftp://a.example"}), "url"),
            (json!({"url": "//a.example"}), "url"),
            (json!({"url": "http://user:secret@a.example/"}), "url"),
            (json!({"url": "http://2130706433/"}), "url"),
            (json!({"url": "http://a.example/#part"}), "url"),
            (json!({"url": format!("http://a.example/{}", "x".repeat(2048))}), "url"),
            (json!({"url": URL, "events": []}), "events"),
            (json!({"url": URL, "events": ["customer.created", "customer.exploded"]}), "events.1"),
            (json!({"url": URL, "enabled": "yes"}), "enabled"),
        ] {
            let refused = merchant.post("/v1/webhooks", &body).await;
            refused.refused(400, "validation_error");
            let at: Vec<_> = refused.json()["error"]["issues"][0]["path"]
                .as_array()
                .unwrap()
                .iter()
                .map(|part| part.as_str().unwrap().to_owned())
                .collect();
            assert_eq!(at.join("."), path, "{body}");
        }
        assert!(merchant.pages("/v1/webhooks", 10).await.is_empty());
    });
}

#[test]
fn a_repeated_creation_creates_one_webhook_and_shows_the_secret_again() {
    run(async {
        let merchant = Merchant::new().await;
        let create = || {
            Request::new("POST", "/v1/webhooks").header("Idempotency-Key", "once").json(&json!({"url": URL}))
        };
        let first = merchant.rest(create()).await.expect(201);
        let again = merchant.rest(create()).await;
        assert_eq!(again.expect(201), first);
        assert_eq!(merchant.pages("/v1/webhooks", 10).await.len(), 1);
    });
}
