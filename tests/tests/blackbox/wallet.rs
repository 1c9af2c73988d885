//! The merchant's own wallet, its payment methods, and funding: each payment is charged once, however often it is requested.

use farthing_tests::client::Request;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

const CHARGES: &str = "\
SELECT max(asked), count(*) FILTER (WHERE declined IS NULL) FROM test_processor.charge WHERE payment_id = $1";

/// A card with a well-known test number.
fn card(number: &str) -> Value {
    json!({"card": {"number": number, "exp_month": 12, "exp_year": 2040, "cvc": "123"}})
}

/// How often the processor received a payment, and how often it charged it.
async fn charges(merchant: &Merchant, payment_id: &str) -> (i32, i64) {
    let row = merchant.log.sql.query_one(CHARGES, &[&payment_id]).await.unwrap();
    (row.get::<_, Option<i32>>(0).unwrap_or(0), row.get(1))
}

#[test]
fn a_payment_credits_the_wallet_and_is_charged_once() {
    run(async {
        let merchant = Merchant::funded("1.5").await;
        let method = merchant.post("/v1/payment_methods", &card("4242 4242 4242 4242")).await.expect(201);
        assert_eq!(
            method["card"],
            json!({"brand": "visa", "last4": "4242", "exp_month": 12, "exp_year": 2040})
        );
        assert_eq!(method["is_default"], json!(true));
        let funding = json!({"amount": "25.5", "payment_method_id": method["payment_method_id"]});
        let funded = merchant.post("/v1/wallet/fund", &funding).await.expect(200);
        assert_eq!(funded["status"], json!("succeeded"));
        assert_eq!(funded["balance"], json!("27.0000000000"));
        let wallet = merchant.get("/v1/wallet").await.expect(200);
        assert_eq!(
            (&wallet["wallet_id"], &wallet["balance"]),
            (&json!(merchant.wallet_id), &json!("27.0000000000"))
        );
        assert_eq!(charges(&merchant, funded["payment_id"].as_str().unwrap()).await, (1, 1));
        // Without a payment method id, the method that was added last pays.
        let newer = merchant.post("/v1/payment_methods", &card("5555555555554444")).await.expect(201);
        merchant.post("/v1/wallet/fund", &json!({"amount": 10})).await.expect(200);
        let methods = merchant.get("/v1/payment_methods").await.expect(200);
        let shown: Vec<_> =
            methods["data"].as_array().unwrap().iter().map(|method| method["is_default"].clone()).collect();
        assert_eq!(shown, [json!(true), json!(false)]);
        assert_eq!(methods["data"][0]["payment_method_id"], newer["payment_method_id"]);
        let log = merchant.log.after(0).await;
        let bodies: Vec<_> = log
            .iter()
            .filter(|event| event.merchant_id == merchant.id)
            .map(|event| event.text.as_str())
            .collect();
        assert!(bodies.iter().all(|body| !body.contains("4242424242424242") && !body.contains("4242 4242")));
    });
}

#[test]
fn a_declined_payment_is_402_and_changes_nothing() {
    run(async {
        let merchant = Merchant::funded("1").await;
        for (number, why) in [
            ("4000000000000002", "declined"),
            ("4000000000009995", "insufficient funds"),
            ("4000000000000069", "expired"),
        ] {
            merchant.post("/v1/payment_methods", &card(number)).await.expect(201);
            let declined = merchant.post("/v1/wallet/fund", &json!({"amount": "100"})).await;
            let error = declined.refused(402, "payment_declined");
            assert!(error["message"].as_str().unwrap().contains(why), "{error}");
        }
        let keyed = || {
            let request = Request::new("POST", "/v1/wallet/fund").header("idempotency-key", "declined");
            request.json(&json!({"amount": "100"}))
        };
        let (first, again) = (merchant.rest(keyed()).await, merchant.rest(keyed()).await);
        assert_eq!((first.status, first.text()), (again.status, again.text()));
        assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
        let wallet = merchant.get("/v1/wallet").await.expect(200);
        assert_eq!(wallet["balance"], json!("1.0000000000"));
    });
}

#[test]
fn one_idempotency_key_pays_once_on_all_gateways() {
    run(async {
        let merchant = Merchant::funded("1").await;
        merchant.post("/v1/payment_methods", &card("4242424242424242")).await.expect(201);
        let ask = |gateway: usize| {
            let request = Request::new("POST", "/v1/wallet/fund")
                .header("idempotency-key", "fund-once")
                .json(&json!({"amount": "50"}))
                .bearer(&merchant.secret_key);
            let gateway = merchant.instance.gateway(gateway);
            async move { request.send(gateway).await.unwrap() }
        };
        let asked: Vec<_> = (0..20).map(|number| tokio::spawn(ask(number % 2))).collect();
        let mut answers = Vec::new();
        for asked in asked {
            let answer = asked.await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            answers.push(answer.text());
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let again = ask(0).await;
        assert_eq!((again.status, again.text()), (200, answers[0].clone()));
        assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
        let wallet = merchant.get("/v1/wallet").await.expect(200);
        assert_eq!(wallet["balance"], json!("51.0000000000"));
        let other = Request::new("POST", "/v1/wallet/fund")
            .header("idempotency-key", "fund-once")
            .json(&json!({"amount": "51"}));
        merchant.rest(other).await.refused(422, "idempotency_key_reused");
    });
}

#[test]
fn an_invalid_payment_is_refused_and_changes_nothing() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let no_method = merchant.post("/v1/wallet/fund", &json!({"amount": "10"})).await;
        no_method.refused(400, "validation_error");
        for (body, path) in [
            (
                json!({"card": {"number": "4242424242424241", "exp_month": 1, "exp_year": 2040, "cvc": "123"}}),
                "number",
            ),
            (
                json!({"card": {"number": "4242424242424242", "exp_month": 13, "exp_year": 2040, "cvc": "123"}}),
                "exp_month",
            ),
            (
                json!({"card": {"number": "4242424242424242", "exp_month": 1, "exp_year": 2040, "cvc": "12"}}),
                "cvc",
            ),
            (json!({"card": {"exp_month": 1, "exp_year": 2040, "cvc": "123"}}), "number"),
        ] {
            let error = merchant.post("/v1/payment_methods", &body).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["card", path]), "{error}");
        }
        merchant.post("/v1/payment_methods", &json!({})).await.refused(400, "validation_error");
        merchant.post("/v1/payment_methods", &card("4242424242424242")).await.expect(201);
        let others = Merchant::funded("1").await;
        let theirs = others.post("/v1/payment_methods", &card("4242424242424242")).await.expect(201);
        for body in [
            json!({}),
            json!({"amount": "9.99"}),
            json!({"amount": "10000.01"}),
            json!({"amount": "10.001"}),
            json!({"amount": "-10"}),
            json!({"amount": 10.5}),
            json!({"amount": "10", "payment_method_id": "pm_nothing"}),
        ] {
            merchant.post("/v1/wallet/fund", &body).await.refused(400, "validation_error");
        }
        let funding = json!({"amount": "10", "payment_method_id": theirs["payment_method_id"]});
        merchant.post("/v1/wallet/fund", &funding).await.refused(404, "payment_method_not_found");
        let wallet = merchant.get("/v1/wallet").await.expect(200);
        assert_eq!(wallet["balance"], json!("1.0000000000"));
    });
}

#[test]
fn a_wallet_below_its_threshold_is_recharged_automatically() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let autopay = json!({"autopay_enabled": true, "autopay_threshold": "0.995", "autopay_amount": "20"});
        // There is no payment method yet.
        merchant.patch("/v1/wallet", &autopay).await.refused(400, "validation_error");
        merchant.post("/v1/payment_methods", &card("4242424242424242")).await.expect(201);
        for wrong in [
            json!({"autopay_enabled": true}),
            json!({"autopay_enabled": true, "autopay_threshold": "0", "autopay_amount": "20"}),
            json!({"autopay_enabled": true, "autopay_threshold": "5", "autopay_amount": "9"}),
            json!({"autopay_threshold": "5"}),
            json!({"autopay_enabled": "yes"}),
        ] {
            merchant.patch("/v1/wallet", &wrong).await.refused(400, "validation_error");
        }
        let wallet = merchant.patch("/v1/wallet", &autopay).await.expect(200);
        assert_eq!(wallet["autopay_enabled"], json!(true));
        assert_eq!(wallet["autopay_amount"], json!("20.0000000000"));

        let customer = merchant.customer("5").await;
        let meter = merchant.call_meter("0.01").await;
        let endpoint =
            merchant.instance.provider.endpoint(|_| farthing_tests::provider::json(200, &json!({})));
        // The merchant pays the meter's fee if billing is disabled.
        let credential = farthing_tests::merchant::token(&json!({
            "secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter.slug,
            "disable_billing": true,
        }));
        merchant.fetch(&credential, &endpoint.url).await.expect(200);
        let balance = eventually("the wallet is recharged", async || {
            let wallet = merchant.get("/v1/wallet").await.expect(200);
            let balance: f64 = wallet["balance"].as_str().unwrap().parse().unwrap();
            (balance > 20.0).then(|| wallet["balance"].clone())
        })
        .await;
        // 1 less the fee of 0.01 and its service charge of 0.00019, and 20.
        assert_eq!(balance, json!("20.9898100000"));
        let off = merchant.patch("/v1/wallet", &json!({"autopay_enabled": false})).await.expect(200);
        assert_eq!((&off["autopay_enabled"], &off["autopay_threshold"]), (&json!(false), &Value::Null));
        let on = json!({"autopay_enabled": true});
        merchant.patch("/v1/wallet", &on).await.refused(400, "validation_error");
    });
}

#[test]
fn autopay_can_be_patched_in_part_and_null_differs_from_absence() {
    run(async {
        let merchant = Merchant::funded("100").await;
        merchant.post("/v1/payment_methods", &card("4242424242424242")).await.expect(201);
        let shown = |wallet: &Value| {
            ["autopay_enabled", "autopay_threshold", "autopay_amount"].map(|name| wallet[name].clone())
        };
        let all = json!({"autopay_enabled": true, "autopay_threshold": "5", "autopay_amount": "20"});
        merchant.patch("/v1/wallet", &all).await.expect(200);
        for (body, threshold, amount) in [
            (json!({}), "5.0000000000", "20.0000000000"),
            (json!({"autopay_threshold": "6.5"}), "6.5000000000", "20.0000000000"),
            (json!({"autopay_amount": 50}), "6.5000000000", "50.0000000000"),
            (json!({"autopay_enabled": true}), "6.5000000000", "50.0000000000"),
            (json!({"other": 1}), "6.5000000000", "50.0000000000"),
        ] {
            let wallet = merchant.patch("/v1/wallet", &body).await.expect(200);
            assert_eq!(shown(&wallet), [json!(true), json!(threshold), json!(amount)], "{body}");
        }
        for (body, path) in [
            (json!({"autopay_enabled": null}), "autopay_enabled"),
            (json!({"autopay_threshold": null}), "autopay_threshold"),
            (json!({"autopay_amount": null}), "autopay_amount"),
            (json!({"autopay_amount": "10000.01"}), "autopay_amount"),
            (json!({"autopay_amount": "10.001"}), "autopay_amount"),
            (json!({"autopay_threshold": "-1"}), "autopay_threshold"),
        ] {
            let error = merchant.patch("/v1/wallet", &body).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([path]), "{body}");
        }
        let off = json!({"autopay_enabled": false, "autopay_threshold": null});
        let wallet = merchant.patch("/v1/wallet", &off).await.expect(200);
        assert_eq!(shown(&wallet), [json!(false), Value::Null, Value::Null]);
        let cleared = json!({"autopay_threshold": null, "autopay_amount": null});
        merchant.patch("/v1/wallet", &cleared).await.expect(200);
    });
}

#[test]
fn events_after_a_clock_advance_have_its_time() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let before = merchant.post("/v1/customers", &json!({})).await.expect(201);
        let clock = merchant.post("/v1/test_clock", &json!({"advance_seconds": 86_400})).await.expect(200);
        let after = merchant.post("/v1/customers", &json!({})).await.expect(201);
        let id = after["customer_id"].as_str().unwrap();
        let shown = merchant.get(&format!("/v1/customers/{id}")).await.expect(200);
        let at = |value: &Value| value.as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        let passed = at(&shown["created_at"]) - at(&before["created_at"]);
        assert!(passed.num_hours() >= 24 && passed.num_hours() < 25, "{passed}");
        assert!(at(&clock["now"]) <= at(&shown["created_at"]));
        // Another merchant's clock has not changed.
        let other = Merchant::new().await.post("/v1/customers", &json!({})).await.expect(201);
        assert!(at(&other["created_at"]) < at(&clock["now"]));
        for wrong in [
            json!({}),
            json!({"advance_seconds": 0}),
            json!({"advance_seconds": -1}),
            json!({"advance_seconds": "1"}),
            json!({"advance_seconds": 3_162_240_001_u64}),
        ] {
            merchant.post("/v1/test_clock", &wrong).await.refused(400, "validation_error");
        }
    });
}
