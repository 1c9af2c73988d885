//! Reads of requests and connections, page by page, and the rate limit.

use std::collections::BTreeSet;

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::merchant::{Merchant, encoded, forward};
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

#[test]
fn a_request_shows_everything_in_both_vocabularies() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m", "service_charge_payer": "wallet",
                "tiers": [{"start": 0, "rate": "5"}, {"start": 100, "rate": "2"}],
            }))
            .await;
        let endpoint = merchant.instance.provider.endpoint(|_| {
            json(
                200,
                &json!({
                    "id": "answer-1", "model": "model-1", "created": 1_790_000_000,
                    "usage": {"input_tokens": 150, "output_tokens": 50},
                }),
            )
        });
        let request = forward("POST", &endpoint.url)
            .header("x-service-metadata", r#"{"team":"blue"}"#)
            .json(&json!({"model": "model-asked", "max_tokens": 100}));
        let response = merchant.send(&merchant.billing(&customer, &meter), request).await;
        let id = response.request_id();
        let shown = merchant.shown(&id, "completed").await;
        let line = json!({
            "tier": {"start": 0, "rate": "5.0000000000", "type": "tokens_1m"}, "tokens": 100, "characters": 0,
            "seconds": 0, "cost": "0.0005000000",
        });
        for (name, value) in [
            ("request_id", json!(id)),
            ("status", json!("completed")),
            ("provider", json!("other")),
            ("endpoint", json!(format!("POST {}", endpoint.url))),
            ("provider_key_type", json!("unmanaged")),
            ("total_request_cost", json!("0.0007133000")),
            ("total_wallet_cost", json!("0.0007133000")),
            ("total_merchant_cost", json!("0.0000000000")),
            ("service_charge", json!({"amount": "0.0000133000", "payer": "wallet"})),
            ("metadata", json!({"team": "blue"})),
            ("connection_id", json!(customer.id)),
            ("customer_id", json!(customer.id)),
            ("product_id", json!(meter.id)),
            ("meter_id", json!(meter.id)),
            ("model", json!("model-1")),
            ("response_id", json!("answer-1")),
            ("cost", json!("0.0000000000")),
        ] {
            assert_eq!(shown[name], value, "{name} in {shown}");
        }
        let fee = &shown["fee"];
        assert_eq!(
            (&fee["amount"], &fee["rate_type"], &fee["token_basis"]),
            (&json!("0.0007000000"), &json!("fixed"), &json!("input+output"))
        );
        let first = fee["breakdown"][0].as_object().unwrap();
        for (name, value) in line.as_object().unwrap() {
            assert_eq!(&first[name], value, "{name}");
        }
        assert_eq!(fee["breakdown"][1]["tier"]["start"], 100);
        assert_eq!(fee["breakdown"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&shown["charge"]["amount"], &shown["charge"]["breakdown"]),
            (&fee["amount"], &fee["breakdown"])
        );
        let usage = &shown["model_usage"];
        for (name, value) in [
            ("input_tokens", json!(150)),
            ("output_tokens", json!(50)),
            ("total_tokens", json!(200)),
            ("input_characters", json!(0)),
            ("total_characters", json!(0)),
            ("total_seconds", json!(0)),
            ("input_cost", json!("0.0000000000")),
            ("output_cost", json!("0.0000000000")),
            ("total_cost", json!("0.0000000000")),
        ] {
            assert_eq!(usage[name], value, "{name}");
        }
        assert!(usage["payer"].is_string());
        assert!(shown["timestamp"].as_str().unwrap().starts_with("2026-09-21T"));
        assert!(shown["created_at"].as_str().unwrap().ends_with('Z'));
    });
}

#[test]
fn requests_are_listed_newest_first_in_pages_and_by_filters() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (first, second) = (merchant.customer("1").await, merchant.customer_called("second", "1").await);
        let (cheap, dear) = (merchant.call_meter("0.01").await, merchant.call_meter("0.02").await);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let mut made = Vec::new();
        for number in 0..23 {
            let customer = if number % 2 == 0 { &first } else { &second };
            let meter = if number % 3 == 0 { &cheap } else { &dear };
            let request = forward("GET", &endpoint.url).header(
                "x-service-metadata",
                json!({"parity": (number % 2).to_string(), "n": number.to_string()}).to_string(),
            );
            let response = merchant.send(&merchant.billing(customer, meter), request).await;
            response.expect(200);
            made.push(response.request_id());
        }
        made.reverse();
        merchant.shown(&made[0], "completed").await;
        let ids = |items: &[Value]| -> Vec<String> {
            items.iter().map(|item| item["request_id"].as_str().unwrap().to_owned()).collect()
        };
        for limit in [1, 7, 23, 100] {
            assert_eq!(ids(&merchant.pages("/v1/requests", limit).await), made, "limit {limit}");
        }
        let page = merchant.get("/v1/requests").await.expect(200);
        assert_eq!(page["data"].as_array().unwrap().len(), 10, "10 by default");
        assert_eq!((&page["has_more"], page["next_cursor"].as_str()), (&json!(true), Some(made[9].as_str())));
        let every = |step: usize, from: usize| -> Vec<String> {
            (0..23).rev().filter(|n| n % step == from).map(|n| made[22 - n].clone()).collect()
        };
        for (filter, expected) in [
            (format!("connection_id={}", first.id), every(2, 0)),
            (format!("customer_id={}", second.id), every(2, 1)),
            ("customer_id=second".to_owned(), every(2, 1)),
            (format!("product_id={}", cheap.id), every(3, 0)),
            (format!("meter_id={}", cheap.id), every(3, 0)),
            (format!("connection_id={}&product_id={}", first.id, cheap.id), every(6, 0)),
            (format!("metadata_filters={}", encoded(r#"[["parity","1"]]"#)), every(2, 1)),
            (
                format!("metadata_filters={}", encoded(r#"[["parity","1"],["n","5"]]"#)),
                vec![made[17].clone()],
            ),
            (format!("metadata_filters={}", encoded(r#"[["parity","7"]]"#)), vec![]),
            (format!("metadata_filters={}", encoded("[]")), made.clone()),
        ] {
            for limit in [2, 100] {
                let listed = merchant.pages(&format!("/v1/requests?{filter}"), limit).await;
                assert_eq!(ids(&listed), expected, "{filter} by {limit}");
            }
        }
        let one = merchant.get(&format!("/v1/requests/{}", made[3])).await.expect(200);
        assert_eq!(merchant.pages("/v1/requests", 100).await[3], one, "the list shows the same as the item");
    });
}

#[test]
fn connections_show_the_wallet_the_secret_and_the_usage_period() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let body = json!({"reference_id": "ada", "name": "Ada Lovelace", "email": "ada@example.com", "phone": "+491701234567"});
        let made = merchant.post("/v1/customers", &body).await.expect(201);
        let id = made["customer_id"].as_str().unwrap().to_owned();
        let customer = farthing_tests::merchant::Customer { id: id.clone(), reference_id: "ada".to_owned() };
        merchant.credit(&customer, "1.5").await;
        let shown = eventually("the credit is shown", async || {
            let shown = merchant.get(&format!("/v1/connections/{id}")).await.expect(200);
            (shown["wallet"]["balance"] == "1.5000000000").then_some(shown)
        })
        .await;
        assert_eq!(shown["connection_id"], id.as_str());
        assert_eq!(shown["reference_id"], "ada");
        assert!(shown["connection_secret"].as_str().unwrap().starts_with("cons_"));
        for (name, value) in [
            ("phone", json!("+491701234567")),
            ("email", json!("ada@example.com")),
            ("first_name", json!("Ada")),
            ("last_name", json!("Lovelace")),
        ] {
            assert_eq!((&shown["wallet"][name], &shown["customer"][name]), (&value, &value));
        }
        assert_eq!(shown["wallet"]["autopay_enabled"], false);
        assert_eq!(shown["has_credit_balance"], false);
        let instant =
            |name: &str| shown[name].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        assert_eq!(instant("previous_usage_reset"), instant("created_at"));
        assert!((28..=31).contains(&(instant("next_usage_reset") - instant("created_at")).num_days()));

        for number in 0..5 {
            merchant.post("/v1/customers", &json!({"reference_id": format!("c{number}")})).await.expect(201);
        }
        let all = merchant.pages("/v1/connections", 2).await;
        let references: Vec<_> = all.iter().map(|item| item["reference_id"].as_str().unwrap()).collect();
        assert_eq!(references, ["c4", "c3", "c2", "c1", "c0", "ada"]);
        assert_eq!(all[5], shown);
        let found = merchant.get("/v1/connections?reference_id=ada").await.expect(200);
        assert_eq!(found["data"], json!([shown]));
        let none = merchant.get("/v1/connections?reference_id=nobody").await.expect(200);
        assert_eq!((&none["data"], &none["has_more"]), (&json!([]), &json!(false)));
        let other = Merchant::new().await;
        assert_eq!(other.get("/v1/connections").await.expect(200)["data"], json!([]));
        assert_eq!(other.get("/v1/requests").await.expect(200)["data"], json!([]));
    });
}

#[test]
fn each_authentication_failure_has_its_own_code() {
    run(async {
        let merchant = Merchant::new().await;
        for path in [
            "/v1/requests",
            "/v1/requests/req_x",
            "/v1/connections",
            "/v1/customers/x",
            "/v1/manage/spend_keys/x",
        ] {
            let bare = Request::new("GET", path);
            bare.send(merchant.gateway()).await.unwrap().refused(401, "auth_header_missing");
            for header in ["Basic eDp5", "Bearer", merchant.secret_key.as_str()] {
                let request = Request::new("GET", path).header("Authorization", header);
                request.send(merchant.gateway()).await.unwrap().refused(401, "auth_header_invalid");
            }
            let wrong = Request::new("GET", path).bearer("aks_test_nobodys");
            wrong.send(merchant.gateway()).await.unwrap().refused(401, "secret_key_invalid");
        }
        let second = merchant.instance.operate(&["key", "issue", "--merchant", &merchant.id]).await;
        let second = second["secret_key"].as_str().unwrap();
        Request::new("GET", "/v1/requests")
            .bearer(second)
            .send(merchant.gateway())
            .await
            .unwrap()
            .expect(200);
    });
}

/// How often a test may fail to use up a window before it ends.
const ATTEMPTS: usize = 5;

fn number(response: &Response, name: &str) -> u64 {
    response.head.header(name).unwrap_or_else(|| panic!("no {name}: {response:?}")).parse().unwrap()
}

/// The responses to `count` calls with a merchant's key, on one connection.
async fn repeated(merchant: &Merchant, target: &str, count: u64) -> Vec<Response> {
    let request = Request::new("GET", target).bearer(&merchant.secret_key);
    let mut connection = Connection::open(merchant.gateway()).await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..count {
        connection.send(&request).await.unwrap();
        answers.push(connection.response("GET").await.unwrap());
    }
    answers
}

/// A new merchant, and one call more than a window admits, all in one window: successful ones, a 404, and invalid ones.
async fn used_up() -> (Merchant, Vec<Response>) {
    for _ in 0..ATTEMPTS {
        let merchant = Merchant::new().await;
        let mut answers = vec![merchant.get("/v1/requests").await, merchant.get("/v1/requests/req_x").await];
        answers.extend(repeated(&merchant, "/v1/requests?limit=0", 999).await);
        let windows: BTreeSet<_> = answers.iter().map(|answer| number(answer, "x-ratelimit-reset")).collect();
        if windows.len() == 1 {
            return (merchant, answers);
        }
    }
    panic!("every window ended before it was used up");
}

#[test]
fn the_rate_limit_is_shown_on_every_response_and_enforced() {
    run(async {
        let before = u64::try_from(chrono::Utc::now().timestamp()).unwrap();
        let (merchant, answers) = used_up().await;
        let after = u64::try_from(chrono::Utc::now().timestamp()).unwrap();
        let (refused, admitted) = answers.split_last().unwrap();
        admitted[0].expect(200);
        admitted[1].refused(404, "request_not_found");
        for (answer, left) in admitted.iter().zip((0..1_000).rev()) {
            assert_eq!(number(answer, "x-ratelimit-limit"), 1_000);
            assert_eq!(number(answer, "x-ratelimit-remaining"), left);
            assert!((before..=after + 61).contains(&number(answer, "x-ratelimit-reset")));
        }
        assert!(admitted[2..].iter().all(|answer| answer.status == 400));
        refused.refused(429, "rate_limit_exceeded");
        assert!((1..=60).contains(&number(refused, "retry-after")));
        assert_eq!(number(refused, "x-ratelimit-remaining"), 0);
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        merchant.credit_own("1").await;
        merchant.fetch(&merchant.secret_key, &endpoint.url).await.expect(200);
        Merchant::new().await.get("/v1/requests").await.expect(200);
    });
}
