//! `Idempotency-Key` on the REST API: one effect and one response, on any gateway.

use std::collections::HashSet;

use farthing_tests::client::{Request, Response};
use farthing_tests::document::{Document, Operation};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use serde_json::{Value, json};

/// A row of an idempotent call, as the database has it.
const ROWS: &str = "SELECT id, fingerprint, request_id, answer FROM ledger.idempotency";

const AGE: &str = "UPDATE ledger.idempotency SET created_at = created_at - interval '24 hours'";

fn keyed(merchant: &Merchant, path: &str, key: &str, body: &Value) -> Request {
    Request::new("POST", path).json(body).bearer(&merchant.secret_key).header("Idempotency-Key", key)
}

async fn post(merchant: &Merchant, gateway: usize, path: &str, key: &str, body: &Value) -> Response {
    keyed(merchant, path, key, body).send(merchant.instance.gateway(gateway)).await.unwrap()
}

fn is_replay(response: &Response) -> bool {
    match response.head.header("idempotency-replayed") {
        Some(value) => value == "true" || panic!("{value}"),
        None => false,
    }
}

/// Posts the same request 200 times at once over two gateways, asserts that all responses are equal, and returns it.
async fn two_hundred(merchant: &Merchant, path: &str, body: &Value) -> Response {
    let request = keyed(merchant, path, "one key", body);
    let gateways = [merchant.instance.gateway(0), merchant.instance.gateway(1)];
    assert_ne!(gateways[0], gateways[1]);
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let request = request.clone();
            tokio::spawn(async move { request.send(gateways[number % 2]).await.unwrap() })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    assert_eq!(
        answers.iter().filter(|answer| !is_replay(answer)).count(),
        1,
        "exactly one response is not a replay"
    );
    let bodies: HashSet<_> = answers.iter().map(|answer| (answer.status, answer.body.clone())).collect();
    assert_eq!(bodies.len(), 1, "all bodies are the same");
    let ids: HashSet<_> = answers.iter().map(Response::request_id).collect();
    assert_eq!(ids.len(), 200, "each call has its own id");
    answers.swap_remove(0)
}

#[test]
fn two_hundred_posts_with_one_key_on_two_gateways_create_one_customer() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({"name": "Ada Lovelace", "email": "ada@example.com", "metadata": {"a": "b"}});
        let answer = two_hundred(&merchant, "/v1/customers", &body).await;
        let made = answer.expect(201);
        assert_eq!(made["contact"]["email"], "ada@example.com");
        let created: Vec<_> =
            merchant.events().await.into_iter().filter(|event| event.kind == "customer.created").collect();
        assert_eq!(created.len(), 1);
        assert_eq!(created[0].text("customer_id"), made["customer_id"]);
    });
}

#[test]
fn two_hundred_posts_with_one_key_create_one_spend_key_with_the_same_raw_key() {
    run(async {
        let merchant = Merchant::new().await;
        let answer = two_hundred(&merchant, "/v1/spend_keys", &json!({"name": "laptop"})).await;
        let made = answer.expect(201);
        assert!(made["key"].as_str().unwrap().starts_with("spk_"));
        let path = format!("/v1/spend_keys/{}/rotate", made["spend_key_id"].as_str().unwrap());
        let rotated = two_hundred(&merchant, &path, &json!({})).await.expect(200);
        assert_ne!(rotated["key"], made["key"]);
        let kinds: Vec<_> = merchant.events().await.into_iter().map(|event| event.kind).collect();
        let count = |kind: &str| kinds.iter().filter(|there| *there == kind).count();
        assert_eq!((count("spend_key.created"), count("key.rotated")), (1, 1));
    });
}

#[test]
fn every_post_replays_its_response_byte_for_byte_and_refuses_its_key_with_another_body() {
    run(async {
        let merchant = Merchant::new().await;
        let existing = merchant.customer_called("there already", "0").await;
        let meter = json!({"name": "m", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]});
        let plan = json!({"name": "p", "period_amount": "0", "included_credit": "1"});
        let card = json!({"number": "4242424242424242", "exp_month": 12, "exp_year": 2040, "cvc": "123"});
        let card = json!({"card": card});
        let priced = merchant.call_meter("0").await;
        let report = json!({
            "request_id": "mine", "customer_id": existing.id, "meter_slug": priced.slug,
            "usage": {"input_tokens": 1},
        });
        let slug = json!({"name": "m", "meter_slug": "one", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}]});
        for (path, body, status) in [
            ("/v1/customers", json!({"name": "Ada"}), 201),
            ("/v1/customers", json!({"reference_id": existing.reference_id}), 200),
            ("/v1/meters", meter.clone(), 201),
            ("/v1/products", meter, 201),
            ("/v1/meters", slug.clone(), 201),
            // A refusal is replayed like any other response.
            ("/v1/meters", slug, 409),
            ("/v1/spend_keys", json!({"name": "k"}), 201),
            ("/v1/manage/spend_keys", json!({"name": "k"}), 201),
            ("/v1/plans", plan.clone(), 201),
            ("/v1/subscription_configs", plan.clone(), 201),
            ("/v1/subscription-configs", plan, 201),
            ("/v1/payment_methods", card, 201),
            ("/v1/requests", report, 201),
            ("/v1/test_clock", json!({"advance_seconds": 5}), 200),
        ] {
            let key = format!("{path} {status} {body}").chars().take(255).collect::<String>();
            let first = post(&merchant, 0, path, &key, &body).await;
            assert_eq!(first.status, status, "{path}: {}", first.text());
            assert!(!is_replay(&first), "{path}");
            let events = merchant.events().await.len();
            for gateway in [1, 0, 1] {
                let again = post(&merchant, gateway, path, &key, &body).await;
                assert_eq!((again.status, &again.body), (first.status, &first.body), "{path}");
                assert!(is_replay(&again), "{path}");
                assert_eq!(again.head.header("content-type"), first.head.header("content-type"));
            }
            let mut other = body.clone();
            other["metadata"] = json!({"other": "body"});
            post(&merchant, 1, path, &key, &other).await.refused(422, "idempotency_key_reused");
            assert_eq!(merchant.events().await.len(), events, "{path}: a repeated call has no effect");
        }
    });
}

#[test]
fn a_key_is_scoped_to_its_merchant_and_path() {
    run(async {
        let (merchant, other) = (Merchant::new().await, Merchant::new().await);
        let body = json!({"name": "the same"});
        let first = post(&merchant, 0, "/v1/spend_keys", "k", &body).await;
        let theirs = post(&other, 0, "/v1/spend_keys", "k", &body).await;
        let alias = post(&merchant, 0, "/v1/manage/spend_keys", "k", &body).await;
        let customer = post(&merchant, 0, "/v1/customers", "k", &body).await;
        let made = [first.expect(201), theirs.expect(201), alias.expect(201), customer.expect(201)];
        assert!(![&first, &theirs, &alias, &customer].into_iter().any(is_replay));
        let keys: HashSet<_> = made.iter().filter_map(|made| made["spend_key_id"].as_str()).collect();
        assert_eq!(keys.len(), 3);
        // A request that is refused before it begins does not use the key.
        post(&merchant, 0, "/v1/customers", "late", &json!({"name": 7}))
            .await
            .refused(400, "validation_error");
        let right = post(&merchant, 0, "/v1/customers", "late", &json!({"name": "Ada"})).await;
        assert!(right.status == 201 && !is_replay(&right));
        // Other methods ignore the header.
        for _ in 0..2 {
            let shown = Request::new("GET", "/v1/requests").header("Idempotency-Key", "k");
            assert!(!is_replay(&merchant.rest(shown).await));
        }
    });
}

#[test]
fn a_replay_is_returned_even_if_the_call_would_now_be_refused() {
    run(async {
        let merchant = Merchant::new().await;
        let soon = (chrono::Utc::now() + chrono::TimeDelta::seconds(2)).to_rfc3339();
        let body = json!({"name": "short-lived", "expires_at": soon});
        let first = post(&merchant, 0, "/v1/spend_keys", "k", &body).await;
        first.expect(201);
        farthing_tests::wait::eventually("the same call would be refused", async || {
            let repeated = merchant.post("/v1/spend_keys", &body).await;
            (repeated.status == 400).then_some(())
        })
        .await;
        let again = post(&merchant, 1, "/v1/spend_keys", "k", &body).await;
        assert_eq!((again.status, &again.body, is_replay(&again)), (201, &first.body, true));
    });
}

#[test]
fn an_invalid_key_is_refused_on_every_post_after_authentication() {
    run(async {
        let merchant = Merchant::new().await;
        let (too_long, longest) = ("x".repeat(256), "x".repeat(255));
        let posts = Document::served().await.standard().into_iter();
        // One is refused whatever its key is.
        let takes_key =
            |operation: &Operation| operation.method == "POST" && operation.id != "create_secret_key";
        let posts: Vec<_> = posts.filter(takes_key).collect();
        assert!(posts.len() > 15, "{}", posts.len());
        for path in posts.iter().map(|post| post.target(|_| "nobody".to_owned())) {
            let path = path.as_str();
            for bad in ["", &too_long, "caf\u{e9}"] {
                let body = json!({"name": "k"});
                let error = post(&merchant, 0, path, bad, &body).await.refused(400, "validation_error");
                assert_eq!(error["issues"][0]["path"], json!(["Idempotency-Key"]), "{path} {bad:?}");
                let stranger = Request::new("POST", path).json(&body).header("Idempotency-Key", bad);
                let stranger = stranger.send(merchant.gateway()).await.unwrap();
                stranger.refused(401, "auth_header_missing");
            }
        }
        post(&merchant, 0, "/v1/customers", &longest, &json!({})).await.expect(201);
        let twice = keyed(&merchant, "/v1/customers", "a", &json!({})).header("Idempotency-Key", "a");
        twice.send(merchant.gateway()).await.unwrap().refused(400, "validation_error");
        assert_eq!(merchant.events().await.len(), 3, "only the merchant, its key and the customer");
    });
}

#[test]
fn stored_responses_are_encrypted_expire_after_a_day_and_do_not_affect_the_log() {
    run(async {
        let instance = Instance::of_test(2).await;
        let merchant = Merchant::of(instance).await;
        let personal = json!({"name": "Ada Lovelace", "email": "ada@example.com", "phone": "+491701234567"});
        let customer = post(&merchant, 0, "/v1/customers", "a readable key", &personal).await;
        let spend_key = post(&merchant, 0, "/v1/spend_keys", "k", &json!({"name": "laptop"})).await;
        let (customer, spend_key) = (customer.expect(201), spend_key.expect(201));
        let mut kept = Vec::new();
        for row in merchant.log.sql.query(ROWS, &[]).await.unwrap() {
            for text in [row.get::<_, Option<String>>(0), row.get(1), row.get(2)] {
                kept.extend(text.unwrap_or_default().into_bytes());
            }
            kept.extend(row.get::<_, Option<Vec<u8>>>(3).unwrap_or_default());
        }
        assert!(!kept.is_empty());
        let kept: String = kept.into_iter().map(char::from).collect();
        for text in [
            "Ada",
            "example.com",
            "+4917",
            "readable",
            "laptop",
            spend_key["key"].as_str().unwrap(),
            spend_key["spend_key_id"].as_str().unwrap(),
            customer["customer_id"].as_str().unwrap(),
            &merchant.id,
        ] {
            assert!(!kept.contains(text), "{text}");
        }

        merchant.log.sql.execute(AGE, &[]).await.unwrap();
        let later = post(&merchant, 1, "/v1/spend_keys", "k", &json!({"name": "another"})).await;
        assert!(!is_replay(&later));
        assert_ne!(later.expect(201)["spend_key_id"], spend_key["spend_key_id"]);
        let again = post(&merchant, 0, "/v1/spend_keys", "k", &json!({"name": "another"})).await;
        assert!(is_replay(&again) && again.body == later.body);
        farthing_tests::wait::eventually("only expired claims are purged", async || {
            (merchant.log.sql.query(ROWS, &[]).await.unwrap().len() == 1).then_some(())
        })
        .await;
        let again = post(&merchant, 1, "/v1/spend_keys", "k", &json!({"name": "another"})).await;
        assert!(is_replay(&again) && again.body == later.body);

        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        instance.stop().await;
        instance.clear();
    });
}
