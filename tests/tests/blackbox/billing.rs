//! Billing of calls: every basis of a price, graduated tiers, payers, and wallets that fall short.

use farthing_tests::books::Books;
use farthing_tests::client::Response;
use farthing_tests::merchant::{Merchant, forward, token};
use farthing_tests::provider::{Endpoint, Gate, Step, json};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// Responds with the usage that the request's body names.
fn obedient(merchant: &Merchant) -> Endpoint {
    merchant.instance.provider.endpoint(|call| {
        let usage: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        json(200, &json!({"usage": usage}))
    })
}

async fn used(merchant: &Merchant, credential: &str, endpoint: &Endpoint, usage: Value) -> Response {
    let response = merchant.send(credential, forward("POST", &endpoint.url).json(&usage)).await;
    assert_eq!(response.status, 200, "{}", response.text());
    response
}

#[test]
fn fees_are_graduated_over_the_tier_usage_of_the_customer_on_the_meter() {
    run(async {
        let merchant = Merchant::funded("1000").await;
        let endpoint = obedient(&merchant);
        let customer = merchant.customer("1000").await;
        let tiers = |steps: &[(u64, &str)]| -> Value {
            steps.iter().map(|(start, rate)| json!({"start": start, "rate": rate})).collect()
        };
        let worked = [(0, "5"), (1_000_000, "3"), (10_000_000, "1")];
        // The usage of each call in turn, with the fee it must have.
        for (tier_type, steps, calls) in [
            // The worked example of the specification, then its tiers from a carried tier usage.
            ("tokens_1m", &worked[..], vec![(json!({"tokens": 5_000_000}), "17.0000000000")]),
            (
                "tokens_1m",
                &worked[..],
                vec![
                    (json!({"tokens": 900_000}), "4.5000000000"),
                    (json!({"tokens": 200_000}), "0.8000000000"),
                    (json!({"input_tokens": 8_000_000, "output_tokens": 1_000_000}), "26.8000000000"),
                    (json!({"tokens": 1}), "0.0000010000"),
                ],
            ),
            ("tokens_1m", &[(0, "2")][..], vec![(json!({"tokens": 700}), "0.0014000000")]),
            (
                "characters_1m",
                &[(0, "2"), (10, "4")][..],
                vec![(json!({"characters": 9}), "0.0000180000"), (json!({"characters": 3}), "0.0000100000")],
            ),
            (
                "minutes",
                &[(0, "0.06"), (60, "0.03")][..],
                vec![
                    (json!({"duration_seconds": 1}), "0.0010000000"),
                    (json!({"duration_seconds": 58.5}), "0.0585000000"),
                    (json!({"duration_seconds": 1}), "0.0007500000"),
                ],
            ),
            (
                "requests",
                &[(0, "0.01"), (2, "0.008")][..],
                vec![
                    (json!({}), "0.0100000000"),
                    (json!(null), "0.0100000000"),
                    (json!({"tokens": 5}), "0.0080000000"),
                ],
            ),
        ] {
            let meter = merchant
                .meter(json!({
                    "name": tier_type, "rate_type": "fixed", "tier_type": tier_type, "tiers": tiers(steps),
                    "service_charge_payer": "merchant",
                }))
                .await;
            let credential = merchant.billing(&customer, &meter);
            for (usage, fee) in calls {
                let response = used(&merchant, &credential, &endpoint, usage.clone()).await;
                let metered = merchant.charged(&response).await;
                assert_eq!(metered["fee"]["amount"], fee, "{tier_type} {usage}");
                assert_eq!(metered["total_wallet_cost"], fee);
                let shown = merchant.shown(&response.request_id(), "completed").await;
                assert_eq!(shown["fee"]["amount"], fee);
                assert_eq!(shown["charge"]["amount"], fee);
                assert_eq!(shown["total_wallet_cost"], fee);
            }
        }
        Books::of(&merchant.log.after(0).await);
    });
}

#[test]
fn the_product_configuration_has_the_same_prices() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let endpoint = obedient(&merchant);
        let usage = json!({"tokens": 3, "characters": 5, "duration_seconds": 7});
        for (basis, fee) in [
            ("requests", "0.0100000000"),
            ("tokens", "0.0300000000"),
            ("characters", "0.0500000000"),
            ("duration", "0.0700000000"),
        ] {
            let meter = merchant
                .meter(json!({
                    "name": basis, "provider": "other", "managedKeys": false, "billingBasis": basis,
                    "feeStructure": {"fixedFee": "0.01"},
                }))
                .await;
            let response =
                used(&merchant, &merchant.billing(&customer, &meter), &endpoint, usage.clone()).await;
            assert_eq!(merchant.charged(&response).await["fee"]["amount"], fee, "{basis}");
        }
    });
}

#[test]
fn a_meter_can_count_output_tokens_only() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let endpoint = obedient(&merchant);
        let meter = merchant
            .meter(json!({
                "name": "output", "rate_type": "fixed", "tier_type": "tokens_1m", "token_basis": "output",
                "tiers": [{"start": 0, "rate": "1000000"}], "service_charge_payer": "merchant",
            }))
            .await;
        let usage = json!({"input_tokens": 100, "output_tokens": 2});
        let response = used(&merchant, &merchant.billing(&customer, &meter), &endpoint, usage).await;
        let metered = merchant.charged(&response).await;
        assert_eq!(
            (metered["units"].as_str(), metered["fee"]["amount"].as_str()),
            (Some("2"), Some("2.0000000000"))
        );
        let fee = merchant.shown(&response.request_id(), "completed").await["fee"].clone();
        assert_eq!((&fee["token_basis"], &fee["amount"]), (&json!("output"), &json!("2.0000000000")));
    });
}

#[test]
fn each_billing_mode_charges_its_payer() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("100").await;
        let endpoint = obedient(&merchant);
        let key = &merchant.secret_key;
        let meter = |payer: &str| {
            json!({
                "name": payer, "rate_type": "fixed", "tier_type": "requests", "tiers": [{"start": 0, "rate": "1"}],
                "service_charge_payer": payer,
            })
        };
        let (by_wallet, by_merchant) =
            (merchant.meter(meter("wallet")).await, merchant.meter(meter("merchant")).await);
        let billed = |slug: &str, more: Value| {
            let mut fields = json!({"secret_key": key, "customer_id": customer.id, "meter_slug": slug});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            token(&fields)
        };
        let none = json!({});
        let off = json!({"disable_billing": true});
        let nothing = "0.0000000000";
        for (credential, fee, charge, wallet, own) in [
            (key.clone(), nothing, nothing, nothing, nothing),
            (
                token(&json!({"secret_key": key, "meter_slug": by_wallet.slug})),
                "1.0000000000",
                nothing,
                nothing,
                nothing,
            ),
            (
                token(&json!({"secret_key": key, "customer_id": customer.id})),
                nothing,
                nothing,
                nothing,
                nothing,
            ),
            (billed(&by_wallet.slug, none.clone()), "1.0000000000", "0.0190000000", "1.0190000000", nothing),
            (
                billed(&by_merchant.slug, none.clone()),
                "1.0000000000",
                "0.0190000000",
                "1.0000000000",
                "0.0190000000",
            ),
            (billed(&by_wallet.slug, off.clone()), "1.0000000000", "0.0190000000", nothing, "1.0190000000"),
            (billed(&by_merchant.slug, off), "1.0000000000", "0.0190000000", nothing, "1.0190000000"),
            (
                billed(&by_merchant.slug, json!({"provider_key": "x"})),
                "1.0000000000",
                "0.0190000000",
                "1.0000000000",
                "0.0190000000",
            ),
            (
                token(
                    &json!({"secret_key": key, "connection_secret": null, "product_secret": null, "provider_key": "x"}),
                ),
                nothing,
                nothing,
                nothing,
                nothing,
            ),
        ] {
            let response = used(&merchant, &credential, &endpoint, json!({"tokens": 10})).await;
            let metered = merchant.charged(&response).await;
            let read = (
                &metered["fee"]["amount"],
                &metered["service_charge"]["amount"],
                &metered["total_wallet_cost"],
                &metered["total_merchant_cost"],
            );
            assert_eq!(read, (&json!(fee), &json!(charge), &json!(wallet), &json!(own)), "{metered}");
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["total_wallet_cost"], wallet);
            assert_eq!(shown["total_merchant_cost"], own);
            assert_eq!(shown["model_usage"]["total_cost"], nothing, "the cost of provider other is 0");
        }
        assert_eq!(merchant.balance(&customer).await, "96.9810000000");
        assert_eq!(merchant.own_balance().await, "97.9240000000");
    });
}

#[test]
fn a_shortfall_of_the_wallet_is_charged_to_the_merchant_and_marked() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("0.5").await;
        let endpoint = obedient(&merchant);
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
                "tiers": [{"start": 0, "rate": "1"}], "service_charge_payer": "merchant",
            }))
            .await;
        let credential = merchant.billing(&customer, &meter);
        let response = used(&merchant, &credential, &endpoint, json!({"tokens": 2_000_000})).await;
        let metered = merchant.charged(&response).await;
        assert_eq!(metered["total_wallet_cost"], "0.5000000000");
        assert_eq!(metered["overrun"], "1.5000000000");
        assert_eq!(metered["total_merchant_cost"], "1.5380000000");
        assert_eq!(metered["marks"], json!(["overrun"]));
        assert_eq!(merchant.balance(&customer).await, "0.0000000000");
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["total_merchant_cost"], "1.5380000000");
        assert!(shown["marks"].as_array().is_some_and(|marks| marks.contains(&json!("overrun"))), "{shown}");
        let refused =
            merchant.send(&credential, forward("POST", &endpoint.url).json(&json!({"tokens": 1}))).await;
        refused.refused(402, "insufficient_balance");
    });
}

#[test]
fn an_output_limit_in_the_body_bounds_the_hold() {
    run(async {
        let merchant = Merchant::funded("100").await;
        let customer = merchant.customer("0.5").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m",
                "tiers": [{"start": 0, "rate": "1000"}], "service_charge_payer": "merchant",
            }))
            .await;
        let credential = merchant.billing(&customer, &meter);
        let call =
            async |body: Value| merchant.send(&credential, forward("POST", &endpoint.url).json(&body)).await;
        for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
            call(json!({name: 100})).await.expect(200);
            call(json!({name: 1_000_000})).await.refused(402, "insufficient_balance");
        }
        call(json!({"generationConfig": {"maxOutputTokens": 100}})).await.expect(200);
        call(json!({"generationConfig": {"maxOutputTokens": 1_000_000}}))
            .await
            .refused(402, "insufficient_balance");
        // No value that a caller writes there makes the hold negative or the gateway fail.
        for odd in [json!(-5), json!("100"), json!(1.5), json!(null), json!([]), json!(u64::MAX)] {
            let response = call(json!({"max_tokens": odd})).await;
            assert!(matches!(response.status, 200 | 402), "{}", response.text());
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn concurrent_calls_never_share_tier_usage() {
    run(async {
        let merchant: &'static Merchant = Box::leak(Box::new(Merchant::funded("100").await));
        let customer = merchant.customer("1000").await;
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m", "service_charge_payer": "merchant",
                "tiers": [{"start": 0, "rate": "5"}, {"start": 1_000_000, "rate": "3"}, {"start": 2_000_000, "rate": "1"}],
            }))
            .await;
        let gate = Gate::default();
        let held = gate.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(held.clone())];
            steps.extend(json(200, &json!({"usage": {"tokens": 100_000}})));
            steps
        });
        let credential = merchant.billing(&customer, &meter);
        let calls: Vec<_> = (0..30)
            .map(|number| {
                let request = forward("GET", &endpoint.url).bearer(&credential);
                tokio::spawn(async move { request.send(merchant.instance.gateway(number)).await.unwrap() })
            })
            .collect();
        eventually("all calls are in flight together", async || (endpoint.calls().len() == 30).then_some(()))
            .await;
        gate.open();
        for call in calls {
            call.await.unwrap().expect(200);
        }
        // 3,000,000 tokens: 5 + 3 + 1, whatever the order.
        assert_eq!(merchant.balance(&customer).await, "991.0000000000");
        Books::of(&merchant.log.after(0).await);
    });
}
