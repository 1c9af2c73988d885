//! Attacks on payments, subscriptions and plans: storms of automatic payments, purchases that race, ids of other merchants,
//! and one merchant's payments before another's.

use std::time::Duration;

use farthing_tests::checkout_page::hidden;
use farthing_tests::client::Request;
use farthing_tests::merchant::{Customer, Merchant, forward};
use farthing_tests::provider::{Gate, Step, json as answer_json};
use farthing_tests::recurring::{IS_DECLINED, Means, PAYS, Page, instant};
use farthing_tests::run;
use farthing_tests::wait::{eventually, settled};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

fn amount(value: &Value) -> Decimal {
    value.as_str().unwrap_or_else(|| panic!("{value} is no amount")).parse().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Makes `count` calls at once, over both gateways, and returns their statuses.
async fn storm(merchant: &Merchant, credential: &str, url: &str, count: usize) -> Vec<u16> {
    let mut calls = JoinSet::new();
    for number in 0..count {
        let request = forward("GET", url).bearer(credential);
        let gateway = merchant.instance.gateway(number % 2);
        calls.spawn(async move { request.send(gateway).await.unwrap().status });
    }
    calls.join_all().await
}

/// Turns a customer's autopay on.
async fn autopay(merchant: &Merchant, customer: &Customer) {
    let settings = json!({"autopay_enabled": true, "autopay_threshold": "5", "autopay_amount": "10"});
    merchant.patch(&format!("/v1/customers/{}/wallet", customer.id), &settings).await.expect(200);
}

#[test]
fn refused_calls_charge_a_declining_card_once_a_day() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("1").await);
        merchant.leave_card(&customer, IS_DECLINED).await;
        autopay(&merchant, &customer).await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        for day in 1..=3 {
            for _ in 0..3 {
                let statuses = storm(&merchant, &credential, &endpoint.url, 60).await;
                assert_eq!(statuses, [402; 60]);
                eventually("the charge is declined", async || {
                    (merchant.of_kind("payment.declined").await.len() == day).then_some(())
                })
                .await;
            }
            let events = settled(Duration::from_millis(300), async || merchant.events().await.len()).await;
            assert_eq!(merchant.of_kind("payment.requested").await.len(), day, "{events}");
            merchant.clock_by(24 * 60 * 60 + 1).await;
        }
        assert!(endpoint.calls().is_empty());
        assert_eq!(merchant.charges().await.len(), 3);
    });
}

#[test]
fn autopay_that_races_payments_by_hand_loses_and_doubles_nothing() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("1").await);
        merchant.leave_card(&customer, PAYS).await;
        autopay(&merchant, &customer).await;
        let mut pages = Vec::new();
        for _ in 0..4 {
            let asked = json!({"checkout_mode": "topup", "customer_id": customer.id});
            pages.push(Page::of(&merchant, &asked).await);
        }
        let html = pages[0].shown(merchant.hosted_pages()).await.text();
        let saved = hidden(&html, "payment_method_id").to_owned();
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        let by_hand = async {
            let mut forms = JoinSet::new();
            for page in pages.iter().cloned().chain(pages.iter().cloned()) {
                let at = merchant.instance.hosted_pages(forms.len() % 2);
                let saved = saved.clone();
                forms.spawn(async move {
                    let saved = ("payment_method_id", saved.as_str());
                    page.post(at, &[("amount", "10"), ("pay", "known"), saved]).await.status
                });
            }
            forms.join_all().await
        };
        let (statuses, forms) = tokio::join!(storm(&merchant, &credential, &endpoint.url, 80), by_hand);
        assert_eq!(forms, [303; 8]);
        let answered = statuses.iter().filter(|status| **status == 200).count();
        merchant.nothing_is_held().await;
        let requested = eventually("every payment has ended", async || {
            let requested = merchant.of_kind("payment.requested").await;
            (requested.len() == merchant.of_kind("payment.succeeded").await.len()).then_some(requested)
        })
        .await;
        let by_hand = requested.iter().filter(|event| event.body["purpose"]["for"] == "fund").count();
        assert_eq!(by_hand, 4, "a page pays once");
        let paid: Decimal = merchant.charges().await.iter().map(|(amount, _)| *amount).sum();
        assert_eq!(paid, Decimal::from(10 * requested.len()));
        let left: Decimal = merchant.balance(&customer).await.parse().unwrap();
        assert_eq!(left, paid - Decimal::from(answered), "{answered} calls at 1");
    });
}

#[test]
fn plans_that_are_bought_at_once_are_one_subscription_and_no_money_is_lost() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        merchant.leave_card(&customer, PAYS).await;
        let plan = async |price: u32| {
            let plan = json!({"name": "p", "period_amount": price.to_string(), "rollover_type": "none"});
            merchant.post("/v1/plans", &plan).await.expect(201)
        };
        let plans = [plan(20).await, plan(30).await, plan(40).await, plan(50).await];
        // First to subscribe, then to upgrade.
        for round in 0..2 {
            let mut pages = Vec::new();
            for plan in &plans[2 * round..][..2] {
                let asked = json!({
                    "checkout_mode": "subscription", "plan_id": plan["plan_id"], "customer_id": customer.id,
                });
                pages.push((Page::of(&merchant, &asked).await, text(&plan["period_amount"])));
            }
            let mut forms = JoinSet::new();
            for (number, (page, price)) in pages.iter().cycle().take(6).cloned().enumerate() {
                let at = merchant.instance.hosted_pages(number % 2);
                forms.spawn(async move { page.send(at, &price, Means::Known).await.status });
            }
            let statuses = forms.join_all().await;
            assert!(statuses.iter().all(|status| [303, 422].contains(status)), "{statuses:?}");
            assert!(statuses.contains(&303), "{statuses:?}");
        }
        let payments = eventually("every payment has ended", async || {
            let requested = merchant.of_kind("payment.requested").await;
            (requested.len() == merchant.of_kind("payment.succeeded").await.len()).then_some(requested)
        })
        .await;
        assert_eq!(merchant.of_kind("subscription.started").await.len(), 1);
        let paid: Decimal = payments.iter().map(|event| amount(&event.body["amount"])).sum();
        let mut got = Decimal::ZERO;
        for kind in ["subscription.started", "subscription.upgraded"] {
            got += merchant
                .of_kind(kind)
                .await
                .iter()
                .map(|event| amount(&event.body["granted"]))
                .sum::<Decimal>();
        }
        assert_eq!(got, paid, "all that was paid is a plan's credit");
    });
}

#[test]
fn a_deleted_customer_is_not_subscribed_and_credit_is_not_granted_twice() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = json!({"name": "free", "period_amount": 0, "included_credit": "5"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let customer = merchant.customer("0").await;
        let asked = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
        let mut posts = JoinSet::new();
        for number in 0..20 {
            let request = Request::new("POST", "/v1/subscriptions").json(&asked).bearer(&merchant.secret_key);
            let gateway = merchant.instance.gateway(number % 2);
            posts.spawn(async move { request.send(gateway).await.unwrap().status });
        }
        let mut statuses = posts.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses[..1], [201]);
        assert_eq!(statuses[1..], [409; 19]);
        // Cancelled and asked for again, the credit of the cycle is not granted again.
        let id = text(&merchant.subscription_of(&customer).await["subscription_id"]);
        merchant.delete(&format!("/v1/subscriptions/{id}")).await.expect(200);
        merchant.post("/v1/subscriptions", &asked).await.refused(409, "subscription_already_active");
        merchant.delete(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        merchant.post("/v1/subscriptions", &asked).await.refused(404, "customer_not_found");
        let granted = merchant.of_kind("subscription.started").await;
        assert_eq!(granted.len(), 1);
        merchant.clock_by(40 * 24 * 60 * 60).await;
        let events = settled(Duration::from_millis(1_500), async || merchant.events().await.len()).await;
        assert_eq!(merchant.of_kind("subscription.renewed").await.len(), 0, "{events} events");
    });
}

#[test]
fn no_body_takes_an_id_of_another_merchant() {
    run(async {
        let own = Merchant::funded("100").await;
        // In the same partition, where the states of both are at hand.
        let other = own.neighbour().await;
        other.credit_own("100").await;
        let plan = json!({
            "name": "p", "period_amount": 0, "included_credit": "1",
            "credit_bundles": [{"name": "b", "cost": "5", "credit_amount": "5"}],
        });
        let mine = own.post("/v1/plans", &plan).await.expect(201);
        let theirs = other.post("/v1/plans", &plan).await.expect(201);
        let bundle = &theirs["credit_bundles"][0]["credit_bundle_id"];
        let (customer, foreign) = (own.customer("0").await, other.customer("0").await);
        let meter = other.call_meter("1").await;
        let card = json!({"card": {"number": PAYS, "exp_month": 12, "exp_year": 2040, "cvc": "123"}});
        let method = other.post("/v1/payment_methods", &card).await.expect(201);
        own.post("/v1/payment_methods", &card).await.expect(201);
        let asked = json!({"customer_id": customer.id, "plan_id": mine["plan_id"]});
        let subscription = own.post("/v1/subscriptions", &asked).await.expect(201)["subscription"].clone();
        let subscription = format!("/v1/subscriptions/{}", text(&subscription["subscription_id"]));
        let plan_path = format!("/v1/plans/{}", text(&mine["plan_id"]));
        let before = (own.events().await.len(), other.events().await.len());
        for (method, path, body, code) in [
            (
                "POST",
                "/v1/wallet/fund",
                json!({"payment_method_id": method["payment_method_id"], "amount": "10"}),
                "payment_method_not_found",
            ),
            (
                "POST",
                "/v1/subscriptions",
                json!({"customer_id": foreign.id, "plan_id": mine["plan_id"]}),
                "customer_not_found",
            ),
            (
                "POST",
                "/v1/subscriptions",
                json!({"customer_id": customer.id, "plan_id": theirs["plan_id"]}),
                "plan_not_found",
            ),
            ("PATCH", &subscription, json!({"auto_top_up_bundle_id": bundle}), "credit_bundle_not_found"),
            (
                "PATCH",
                &plan_path,
                json!({"default_auto_top_up_bundle_id": bundle}),
                "credit_bundle_not_found",
            ),
            (
                "PATCH",
                &plan_path,
                json!({"credit_bundles": [{"id": bundle, "cost": "1"}]}),
                "credit_bundle_not_found",
            ),
            (
                "PATCH",
                &plan_path,
                json!({"credit_bundles": [{"credit_bundle_id": bundle, "is_deleted": true}]}),
                "credit_bundle_not_found",
            ),
            ("PATCH", &plan_path, json!({"meter_ids": [meter.id]}), "meter_not_found"),
            ("PATCH", &plan_path, json!({"product_ids": [meter.slug]}), "meter_not_found"),
            (
                "POST",
                "/v1/plans",
                json!({"name": "p", "period_amount": 0, "meter_ids": [meter.id]}),
                "meter_not_found",
            ),
            (
                "POST",
                "/v1/plans",
                json!({"name": "p", "period_amount": 0, "default_auto_top_up_bundle_id": bundle}),
                "credit_bundle_not_found",
            ),
            (
                "POST",
                "/v1/spend_keys",
                json!({"name": "k", "connection_id": foreign.id}),
                "customer_not_found",
            ),
        ] {
            let request = Request::new(method, path).json(&body);
            let answer = own.rest(request).await;
            assert_eq!(answer.status, 404, "{method} {path} {body}: {}", answer.text());
            assert_eq!(answer.json()["error"]["code"], code, "{method} {path} {body}");
        }
        assert_eq!((own.events().await.len(), other.events().await.len()), before);
    });
}

#[test]
fn a_plan_has_at_most_a_hundred_bundles_however_often_it_is_changed() {
    run(async {
        let merchant = Merchant::new().await;
        let bundles = |count: usize| vec![json!({"name": "b", "cost": "1", "credit_amount": "1"}); count];
        let plan = json!({"name": "p", "period_amount": 0, "credit_bundles": bundles(99)});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let path = format!("/v1/plans/{}", text(&plan["plan_id"]));
        let add =
            async |count: usize| merchant.patch(&path, &json!({"credit_bundles": bundles(count)})).await;
        let events = merchant.events().await.len();
        for count in [2, 100] {
            let error = add(count).await.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!(["credit_bundles"]), "{error}");
        }
        assert_eq!(merchant.events().await.len(), events);
        add(1).await.expect(200);
        add(1).await.refused(400, "validation_error");
        // One that goes makes room for one.
        let first = &plan["credit_bundles"][0]["credit_bundle_id"];
        let mut change = bundles(1);
        change.push(json!({"credit_bundle_id": first, "is_deleted": true}));
        let changed = merchant.patch(&path, &json!({"credit_bundles": change})).await.expect(200);
        assert_eq!(changed["credit_bundles"].as_array().unwrap().len(), 100);
    });
}

#[test]
fn credit_that_expires_under_calls_in_flight_pays_for_none_of_them() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let plan = json!({"name": "five", "period_amount": "5", "rollover_type": "none"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let (customer, meter) = (merchant.customer("0").await, merchant.call_meter("1").await);
        let subscription = merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        merchant.leave_card(&customer, IS_DECLINED).await;
        let gate = Gate::default();
        let endpoint = {
            let gate = gate.clone();
            let answer = answer_json(200, &json!({}));
            merchant
                .instance
                .provider
                .endpoint(move |_| [vec![Step::Wait(gate.clone())], answer.clone()].concat())
        };
        let credential = merchant.billing(&customer, &meter);
        let calls = storm(&merchant, &credential, &endpoint.url, 8);
        let cycle_ends = async {
            eventually("the credit is held", async || (endpoint.calls().len() == 5).then_some(())).await;
            merchant.clock_to(instant(&subscription["cycle_end_at"])).await;
            eventually("the renewal is declined", async || {
                (merchant.of_kind("payment.declined").await.len() == 1).then_some(())
            })
            .await;
            let late = merchant.fetch(&credential, &endpoint.url).await;
            late.refused(402, "insufficient_balance");
            gate.open();
        };
        let (mut statuses, ()) = tokio::join!(calls, cycle_ends);
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 200, 200, 200, 402, 402, 402]);
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "0.0000000000");
        let metered = merchant.of_kind("request.metered").await;
        assert_eq!(metered.len(), 5);
        // 1 and the service charge of 0.019, each: the merchant's, and nobody's credit.
        assert_eq!(merchant.own_balance().await, "4.9050000000");
        let expired = merchant.of_kind("subscription.cycle_ended").await;
        assert_eq!((expired.len(), &expired[0].body["expired"]), (1, &json!("5.0000000000")));
    });
}

/// Customers of the merchant whose renewals fall due at once.
const RENEWALS: usize = 96;

#[test]
fn a_merchant_with_many_renewals_does_not_come_before_anothers_automatic_payment() {
    run(async {
        // The processor that does not answer for a while is that of all merchants of an instance.
        let many = Merchant::alone(1).await;
        let plan = json!({"name": "daily", "period_amount": "1", "billing_interval": "day"});
        let plan = many.post("/v1/plans", &plan).await.expect(201);
        for number in 0..RENEWALS {
            let customer = many.customer_called(&format!("c{number}"), "0").await;
            many.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        }
        let one = many.neighbour().await;
        one.credit_own("1").await;
        let (customer, meter) = (one.customer("0").await, one.call_meter("1").await);
        one.leave_card(&customer, PAYS).await;
        autopay(&one, &customer).await;

        // The processor does not answer for a while, and payments queue up.
        let mut sql = one.instance.log().await;
        let lock = sql.sql.transaction().await.unwrap();
        lock.batch_execute("LOCK TABLE test_processor.charge IN ACCESS EXCLUSIVE MODE").await.unwrap();
        many.clock_by(24 * 60 * 60 + 1).await;
        eventually("all renewals are requested", async || {
            (many.of_kind("payment.requested").await.len() == 2 * RENEWALS).then_some(())
        })
        .await;
        let endpoint = one.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        one.fetch(&one.billing(&customer, &meter), &endpoint.url).await.refused(402, "insufficient_balance");
        eventually("the automatic payment is requested", async || {
            (one.of_kind("payment.requested").await.len() == 1).then_some(())
        })
        .await;
        // A gateway looks for open payments in the stored states, which are behind the log.
        one.log.stored().await;
        lock.rollback().await.unwrap();

        let paid = eventually("the automatic payment succeeds", async || {
            one.of_kind("payment.succeeded").await.into_iter().next()
        })
        .await;
        eventually("all renewals succeed", async || {
            (many.of_kind("payment.succeeded").await.len() == 2 * RENEWALS).then_some(())
        })
        .await;
        let renewed = many.of_kind("payment.succeeded").await;
        let before = renewed.iter().filter(|event| event.position < paid.position).count() - RENEWALS;
        // Those that were on their way, of one round.
        assert!(before <= RENEWALS / 2, "{before} of {RENEWALS} renewals came first");
    });
}
