//! Reported usage: priced and charged like a forwarded call, once per id, and shown like other requests.

use farthing_tests::client::Request;
use farthing_tests::merchant::Merchant;
use farthing_tests::recurring::PAYS;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

async fn token_meter(merchant: &Merchant) -> farthing_tests::merchant::Meter {
    let fields = json!({
        "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m", "service_charge_payer": "wallet",
        "tiers": [{"start": 0, "rate": "5"}, {"start": 1_000_000, "rate": "3"}],
    });
    merchant.meter(fields).await
}

#[test]
fn a_report_is_priced_charged_and_shown_like_a_forwarded_call() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let meter = token_meter(&merchant).await;
        let body = json!({
            "request_id": "req_of a provider/1", "customer_id": customer.reference_id, "meter_slug": meter.slug,
            "provider": "openai", "model": "model-1", "endpoint": "POST https://api.example/v1", "response_id": "r-1",
            "timestamp": "2026-11-20T10:00:00Z", "metadata": {"team": "blue"},
            "usage": {"input_tokens": 900_000, "output_tokens": 300_000},
        });
        let made = merchant.post("/v1/requests", &body).await.expect(201);
        for (name, value) in [
            ("request_id", json!("req_of a provider/1")),
            ("status", json!("completed")),
            ("provider", json!("openai")),
            ("provider_key_type", json!("unmanaged")),
            ("model", json!("model-1")),
            ("response_id", json!("r-1")),
            ("endpoint", json!("POST https://api.example/v1")),
            ("timestamp", json!("2026-11-20T10:00:00.000Z")),
            ("customer_id", json!(customer.id)),
            ("meter_id", json!(meter.id)),
            ("metadata", json!({"team": "blue"})),
            // 1,000,000 × 5 + 200,000 × 3 per million, and 1.9 % on it.
            ("total_request_cost", json!("5.7064000000")),
            ("total_wallet_cost", json!("5.7064000000")),
            ("total_merchant_cost", json!("0.0000000000")),
        ] {
            assert_eq!(made[name], value, "{name} in {made}");
        }
        assert_eq!(made["fee"]["amount"], "5.6000000000");
        assert_eq!(made["model_usage"]["total_tokens"], 1_200_000);
        assert_eq!(merchant.balance(&customer).await, "4.2936000000");
        merchant.nothing_is_held().await;

        // It is shown the same by its id, in the list, under every filter, and in the usage report.
        let shown = merchant.get("/v1/requests/req_of%20a%20provider%2F1").await.expect(200);
        assert_eq!(shown, made);
        for filter in [
            String::new(),
            format!("?customer_id={}", customer.id),
            format!("?meter_id={}", meter.id),
            "?metadata_filters=%5B%5B%22team%22%2C%22blue%22%5D%5D".to_owned(),
        ] {
            let list = merchant.get(&format!("/v1/requests{filter}")).await.expect(200);
            assert_eq!(list["data"], json!([made]), "{filter}");
        }
        let start = (chrono::Utc::now() - chrono::TimeDelta::days(1)).format("%Y-%m-%dT%H:%M:%SZ");
        let usage = merchant.get(&format!("/v1/usage?start={start}")).await.expect(200);
        assert_eq!(usage["totals"]["total_requests"], 1);
        assert_eq!(usage["totals"]["total_wallet_cost"], "5.7064000000");

        // The same id again returns the stored object, whatever the report contains.
        for body in [body, json!({"request_id": "req_of a provider/1", "usage": {"tokens": 1}})] {
            let again = merchant.post("/v1/requests", &body).await.expect(200);
            assert_eq!(again, made);
        }
        assert_eq!(merchant.balance(&customer).await, "4.2936000000");
        // Ids are scoped to the merchant.
        let other = Merchant::new().await;
        other.get("/v1/requests/req_of%20a%20provider%2F1").await.refused(404, "request_not_found");
        other.post("/v1/requests", &json!({"request_id": "req_of a provider/1"})).await.expect(201);
    });
}

#[test]
fn a_shortfall_of_the_wallet_is_charged_to_the_merchant() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("1").await;
        let meter = token_meter(&merchant).await;
        let report = |id: &str, tokens: u64| json!({"request_id": id, "customer_id": customer.id, "meter_id": meter.id, "tokens": tokens});
        let made = merchant.post("/v1/requests", &report("beyond", 400_000)).await.expect(201);
        assert_eq!(made["total_request_cost"], "2.0380000000");
        assert_eq!(made["total_wallet_cost"], "1.0000000000");
        assert_eq!(
            (&made["total_merchant_cost"], &made["overrun"]),
            (&json!("1.0380000000"), &made["overrun"])
        );
        assert_eq!(made["overrun"], "1.0380000000");
        assert_eq!(made["marks"], json!(["overrun"]));
        assert_eq!(merchant.balance(&customer).await, "0.0000000000");
        assert_eq!(merchant.own_balance().await, "-1.0380000000");
        // Also without a balance and without counts.
        let made = merchant.post("/v1/requests", &json!({"request_id": "nothing"})).await.expect(201);
        assert_eq!((&made["marks"], &made["endpoint"]), (&json!(["usage_missing"]), &json!("reported")));
        assert_eq!(made["total_request_cost"], "0.0000000000");
        // Reports continue from the tier usage of earlier ones.
        merchant.credit(&customer, "100").await;
        let made = merchant.post("/v1/requests", &report("on", 1_000_000)).await.expect(201);
        assert_eq!(made["fee"]["amount"], "4.2000000000");
    });
}

#[test]
fn a_hundred_identical_reports_on_two_gateways_have_one_effect() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::new().await));
        let customer = merchant.customer("10").await;
        let meter = merchant.call_meter("1").await;
        let body = json!({"request_id": "once", "customer_id": customer.id, "meter_id": meter.id});
        let request = Request::new("POST", "/v1/requests").bearer(&merchant.secret_key).json(&body);
        let posts: Vec<_> = (0..100)
            .map(|number| {
                let (request, to) = (request.clone(), merchant.instance.gateway(number));
                tokio::spawn(async move { request.send(to).await.unwrap() })
            })
            .collect();
        let mut created = 0;
        let mut bodies: Vec<Value> = Vec::new();
        for post in posts {
            let response = post.await.unwrap();
            created += usize::from(response.status == 201);
            bodies.push(response.expect(if response.status == 201 { 201 } else { 200 }));
        }
        assert_eq!(created, 1);
        assert!(bodies.iter().all(|body| *body == bodies[0]));
        assert_eq!(merchant.balance(&customer).await, "9.0000000000");
        let kinds: Vec<_> = merchant.events().await.into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds.iter().filter(|kind| *kind == "request.opened").count(), 1);
        assert_eq!(
            kinds.iter().filter(|kind| *kind == "wallet.debited").count(),
            2,
            "fee, and service charge"
        );
    });
}

#[test]
fn reports_are_listed_with_forwarded_calls_page_by_page() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let url =
            merchant.instance.provider.endpoint(|_| farthing_tests::provider::json(200, &json!({}))).url;
        let mut made = Vec::new();
        for number in 0..7 {
            let id = format!("{}/{number} ü?", merchant.id);
            merchant.post("/v1/requests", &json!({"request_id": id})).await.expect(201);
            made.push(id);
            made.push(merchant.fetch(&merchant.secret_key, &url).await.request_id());
        }
        made.reverse();
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = merchant.get(&format!("/v1/requests?limit=3{cursor}")).await.expect(200);
            let ids =
                page["data"].as_array().unwrap().iter().map(|item| item["request_id"].as_str().unwrap());
            seen.extend(ids.map(str::to_owned));
            let Some(next) = page["next_cursor"].as_str() else { break };
            assert_eq!(Some(next), seen.last().map(String::as_str));
            cursor = format!("&cursor={}", farthing_tests::merchant::encoded(next));
        }
        assert_eq!(seen, made);
    });
}

#[test]
fn an_invalid_report_is_refused() {
    run(async {
        let merchant = Merchant::new().await;
        let other = Merchant::new().await;
        let (customer, meter) = (other.customer("1").await, other.call_meter("1").await);
        let before = merchant.events().await.len();
        for (body, path) in [
            (json!({}), "request_id"),
            (json!({"request_id": ""}), "request_id"),
            (json!({"request_id": "x".repeat(256)}), "request_id"),
            (json!({"request_id": "a\0b"}), "request_id"),
            (json!({"request_id": "req_01ARZ3NDEKTSV4RRFFQ69G5FAV"}), "request_id"),
            (json!({"request_id": "a", "tokens": -1}), "tokens"),
            (json!({"request_id": "a", "metadata": {"a b": "c"}}), "metadata"),
            (json!({"request_id": "a", "provider": ""}), "provider"),
        ] {
            let error = merchant.post("/v1/requests", &body).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"][0], path, "{body}: {error}");
        }
        for (body, code) in [
            (json!({"request_id": "a", "customer_id": "nobody"}), "customer_not_found"),
            (json!({"request_id": "a", "customer_id": customer.id}), "customer_not_found"),
            (json!({"request_id": "a", "meter_id": meter.id}), "meter_not_found"),
            (json!({"request_id": "a", "meter_slug": meter.slug}), "meter_not_found"),
        ] {
            merchant.post("/v1/requests", &body).await.refused(404, code);
        }
        let dear = json!({
            "name": "dear", "rate_type": "fixed", "tier_type": "tokens_1m",
            "tiers": [{"start": 0, "rate": "1000000"}],
        });
        let dear = merchant.meter(dear).await;
        let absurd = json!({"request_id": "a", "meter_id": dear.id, "input_tokens": 1_000_000_000_000_u64, "output_tokens": 1});
        let error = merchant.post("/v1/requests", &absurd).await.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["usage"]));
        assert_eq!(merchant.events().await.len(), before + 1, "only the meter");
        Request::new("POST", "/v1/requests")
            .json(&json!({"request_id": "a"}))
            .send(merchant.gateway())
            .await
            .unwrap()
            .refused(401, "auth_header_missing");
    });
}

#[test]
fn a_report_whose_percentage_has_no_list_price_is_refused_and_says_so() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let share = merchant
            .meter(json!({"name": "s", "rate_type": "percentage", "tiers": [{"start": 0, "rate": "10"}]}))
            .await;
        let body = json!({
            "request_id": "r", "meter_slug": share.slug, "provider": "openai", "model": "unheard-of", "usage": {"tokens": 1},
        });
        let refused = merchant.post("/v1/requests", &body).await.refused(400, "model_not_priced");
        let message = refused["message"].as_str().unwrap();
        for part in ["percentage of the provider's cost", "does not list the provider and the model"] {
            assert!(message.contains(part), "{message}");
        }
    });
}

#[test]
fn a_report_recharges_the_empty_wallet_of_its_customer() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("1").await);
        merchant.leave_card(&customer, PAYS).await;
        let autopay = json!({"autopay_enabled": true, "autopay_threshold": "5", "autopay_amount": "20"});
        merchant.patch(&format!("/v1/customers/{}/wallet", customer.id), &autopay).await.expect(200);
        let report = async |id: &str| {
            let body = json!({"request_id": id, "customer_id": customer.id, "meter_slug": meter.slug});
            merchant.post("/v1/requests", &body).await.expect(201)
        };
        assert_eq!(report("first").await["total_wallet_cost"], "0.0000000000");
        eventually("the wallet is recharged", async || merchant.of_kind("payment.succeeded").await.pop())
            .await;
        assert_eq!(report("second").await["total_wallet_cost"], "1.0000000000");
        assert_eq!(merchant.charges().await, [("20".parse().unwrap(), None)]);
    });
}
