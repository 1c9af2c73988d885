//! Plan changes on hosted pages: an upgrade is immediate and paid in full, a downgrade takes effect at the end of the cycle
//! and is free; and how the API and the read models show them.

use chrono::{Datelike as _, TimeDelta};
use farthing_tests::checkout_page::hidden;
use farthing_tests::merchant::{Customer, Merchant, Meter};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{Means, PAYS, Page, instant};
use farthing_tests::run;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// A card that is declined.
const DECLINED: &str = "4000000000000002";

async fn plan(merchant: &Merchant, name: &str, price: &str, interval: &str) -> Value {
    let body = json!({
        "name": name, "period_amount": price, "billing_interval": interval, "rollover_type": "none",
        "credit_bundles": [{"name": "Four", "cost": "5", "credit_amount": "4"}],
    });
    merchant.post("/v1/plans", &body).await.expect(201)
}

fn id_of(subscription: &Value) -> String {
    subscription["subscription_id"].as_str().unwrap().to_owned()
}

fn paid(amount: &str) -> (Decimal, Option<String>) {
    (amount.parse().unwrap(), None)
}

/// A meter whose first two calls of a usage period cost 1 each, and the next ones half of that.
async fn tiered(merchant: &Merchant) -> Meter {
    merchant
        .meter(json!({
            "name": "tiered", "rate_type": "fixed", "tier_type": "requests",
            "tiers": [{"start": 0, "rate": "1"}, {"start": 2, "rate": "0.5"}], "service_charge_payer": "merchant",
        }))
        .await
}

/// Makes calls, one after the other, with these costs.
async fn calls(merchant: &Merchant, customer: &Customer, meter: &Meter, costs: &[&str]) {
    let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
    let credential = merchant.billing(customer, meter);
    for cost in costs {
        let called = merchant.fetch(&credential, &endpoint.url).await;
        called.expect(200);
        let charged = merchant.charged(&called).await;
        let wanted: Decimal = cost.parse().unwrap();
        assert_eq!(charged["total_wallet_cost"], format!("{wanted:.10}"));
    }
}

async fn remaining(merchant: &Merchant, customer: &Customer) -> String {
    let shown = merchant.subscription_of(customer).await;
    let credit = shown["credits"]["total_remaining"].as_str().unwrap();
    credit.parse::<Decimal>().unwrap().normalize().to_string()
}

/// Asserts that the read models of subscriptions equal a fold of the log.
async fn read_models_are_true(merchant: &Merchant) {
    for name in ["subscriptions", "connections", "customers", "payment_methods", "checkout_sessions"] {
        let report = merchant.instance.operate(&["projections", "verify", name]).await;
        assert_eq!(report["differences"], 0, "{name}: {report}");
    }
}

#[test]
fn an_upgrade_is_paid_in_full_and_begins_at_once() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let (small, big) =
            (plan(&merchant, "Small", "10", "month").await, plan(&merchant, "Big", "25", "month").await);
        let (customer, meter) = (merchant.customer("0").await, tiered(&merchant).await);
        let began = merchant.subscribe(&customer, &small, Means::Card(PAYS)).await;
        let id = id_of(&began);
        calls(&merchant, &customer, &meter, &["1", "1", "0.5"]).await;
        merchant.buy(&customer, &small["credit_bundles"][0], Means::Known).await;
        assert_eq!(remaining(&merchant, &customer).await, "11.5", "7.5 and the bundle's 4");
        merchant.clock_by(3 * 86_400).await;
        // An upgrade withdraws a pending cancellation.
        merchant.delete(&format!("/v1/subscriptions/{id}")).await.expect(200);
        let before = merchant.subscription_of(&customer).await;
        assert_eq!(before["pending_change"]["type"], "cancellation");

        let asked =
            json!({"checkout_mode": "subscription", "plan_id": big["plan_id"], "customer_id": customer.id});
        let page = Page::of(&merchant, &asked).await;
        let wrong_price = page.send(merchant.hosted_pages(), "10.0000000000", Means::Known).await;
        assert_eq!(wrong_price.status, 422, "{}", wrong_price.text());
        let refused = page.send(merchant.hosted_pages(), "25.0000000000", Means::Card(DECLINED)).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert_eq!(merchant.subscription_of(&customer).await, before, "a declined card changes nothing");

        // A double click, on both gateways, is one upgrade.
        let (one, two) = tokio::join!(
            page.send(merchant.instance.hosted_pages(0), "25.0000000000", Means::Card(PAYS)),
            page.send(merchant.instance.hosted_pages(1), "25.0000000000", Means::Card(PAYS)),
        );
        assert_eq!((one.status, two.status), (303, 303), "{} {}", one.text(), two.text());
        let upgraded = merchant.comes_to(&id, "subscription.upgraded", 1).await.remove(0);
        let after = merchant.subscription_of(&customer).await;
        assert_eq!((id_of(&after), &after["plan_id"]), (id.clone(), &big["plan_id"]));
        assert_eq!(after["plan"]["name"], "Big");
        assert_eq!((&after["started_at"], &after["pending_change"]), (&began["started_at"], &Value::Null));
        assert_eq!(instant(&after["cycle_start_at"]), upgraded.occurred_at, "it begins when it is paid");
        assert_eq!(
            after["credits"],
            json!({
                "total_remaining": "36.5000000000", "cycle_remaining": "32.5000000000",
                "bundle_remaining": "4.0000000000",
            }),
            "the remaining credit is kept beside the new plan's 25"
        );
        let late =
            [paid("10"), paid("5"), ("25".parse().unwrap(), Some("card_declined".to_owned())), paid("25")];
        assert_eq!(merchant.charges().await, late);
        let customer_shown = merchant.get(&format!("/v1/customers/{}", customer.id)).await.expect(200);
        assert_eq!(customer_shown["subscription"]["name"], "Big");
        let older = merchant.get("/v1/active-subscriptions").await.expect(200);
        assert_eq!(older[0]["billing_anchor"], json!(instant(&after["cycle_start_at"]).day()));
        assert_eq!(older[0]["subscription_config"]["period_amount"], "25.0000000000");
        assert_eq!(older[0]["wallet"]["active_balance"], "36.5000000000");
        // The usage period is the new cycle: its first two calls cost 1 again.
        let connection = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
        assert_eq!(connection["previous_usage_reset"], after["cycle_start_at"]);
        assert_eq!(connection["next_usage_reset"], after["cycle_end_at"]);
        calls(&merchant, &customer, &meter, &["1", "1", "0.5"]).await;
        read_models_are_true(&merchant).await;

        // The old cycle's end has no effect; the new one's has.
        merchant.clock_to(instant(&after["cycle_end_at"])).await;
        merchant.comes_to(&id, "subscription.renewed", 1).await;
        let renewed = merchant.subscription_of(&customer).await;
        assert_eq!(renewed["cycle_start_at"], after["cycle_end_at"]);
        assert_eq!(renewed["credits"]["cycle_remaining"], "25.0000000000");
        assert_eq!(merchant.charges().await, [&late[..], &[paid("25")]].concat());

        // A session for the current plan changes nothing.
        let asked =
            json!({"checkout_mode": "subscription", "plan_id": big["plan_id"], "customer_id": customer.id});
        let again = Page::of(&merchant, &asked).await.send(merchant.hosted_pages(), "", Means::None).await;
        assert_eq!(again.status, 200, "{}", again.text());
        assert!(again.text().contains("You already have this plan"), "{}", again.text());
        assert_eq!(merchant.subscription_of(&customer).await, renewed);
    });
}

#[test]
fn a_downgrade_begins_at_the_end_of_the_cycle_and_the_last_request_counts() {
    run(async {
        let merchant = Merchant::new().await;
        let dear = plan(&merchant, "Dear", "20", "month").await;
        let cheap = plan(&merchant, "Cheap", "5", "month").await;
        let free =
            json!({"name": "Free", "period_amount": 0, "included_credit": "1", "billing_interval": "week"});
        let free = merchant.post("/v1/plans", &free).await.expect(201);
        let customer = merchant.customer("0").await;
        let began = merchant.subscribe(&customer, &dear, Means::Card(PAYS)).await;
        let id = id_of(&began);
        let path = format!("/v1/subscriptions/{id}");
        let wish = |plan: &Value| {
            json!({
                "type": "downgrade", "effective_at": began["cycle_end_at"], "plan_id": plan["plan_id"],
                "subscription_config_id": plan["plan_id"],
            })
        };
        let shown = merchant.subscribe(&customer, &cheap, Means::None).await;
        assert_eq!(shown["pending_change"], wish(&cheap));
        let shown = merchant.delete(&path).await.expect(200)["subscription"].clone();
        let end = json!({"type": "cancellation", "effective_at": began["cycle_end_at"]});
        assert_eq!(shown["pending_change"], end);
        let shown = merchant.subscribe(&customer, &free, Means::None).await;
        assert_eq!(shown["pending_change"], wish(&free));
        for name in ["plan_id", "plan", "credits", "cycle_start_at", "cycle_end_at", "status"] {
            assert_eq!(shown[name], began[name], "{name} stays until then");
        }
        let listed = merchant.get("/v1/subscriptions?status=active").await.expect(200);
        assert_eq!(listed["data"], json!([shown]));
        // A pending change keeps its price when the plan is changed.
        merchant.delete(&format!("/v1/plans/{}", free["plan_id"].as_str().unwrap())).await.expect(200);

        merchant.clock_to(instant(&began["cycle_end_at"])).await;
        merchant.comes_to(&id, "subscription.renewed", 1).await;
        let now = merchant.subscription_of(&customer).await;
        assert_eq!((&now["plan_id"], &now["pending_change"]), (&free["plan_id"], &Value::Null));
        assert_eq!(now["cycle_start_at"], began["cycle_end_at"]);
        let week = instant(&now["cycle_end_at"]) - instant(&now["cycle_start_at"]);
        assert_eq!(week, TimeDelta::weeks(1), "the new plan's interval, counted from the change");
        assert_eq!(now["credits"]["total_remaining"], "1.0000000000", "the old plan's 20 expired");
        let older = merchant.get("/v1/active-subscriptions").await.expect(200);
        assert_eq!(older[0]["billing_anchor"], json!(instant(&now["cycle_start_at"]).day()));
        assert_eq!(older[0]["subscription_config"]["name"], "Free");
        merchant.clock_to(instant(&now["cycle_end_at"])).await;
        merchant.comes_to(&id, "subscription.renewed", 2).await;
        assert_eq!(merchant.charges().await, [paid("20")], "nothing was paid after the first page");
        read_models_are_true(&merchant).await;
    });
}

#[test]
fn only_the_offer_that_was_shown_is_charged() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let plan = plan(&merchant, "Pro", "20", "month").await;
        merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        let bundle = &plan["credit_bundles"][0]["credit_bundle_id"];
        let asked = json!({
            "checkout_mode": "credit_bundle", "credit_bundle_id": bundle, "customer_id": customer.id,
        });
        let page = Page::of(&merchant, &asked).await;
        // The same price for less credit.
        let changed = json!({"credit_bundles": [{"credit_bundle_id": bundle, "credit_amount": "1"}]});
        let path = format!("/v1/plans/{}", plan["plan_id"].as_str().unwrap());
        merchant.patch(&path, &changed).await.expect(200);
        let html = page.shown(merchant.hosted_pages()).await.text();
        let saved = ("payment_method_id", hidden(&html, "payment_method_id"));
        let seen = |credit| [("pay", "known"), saved, ("price", "5.0000000000"), ("credit", credit)];
        let response = page.post(merchant.hosted_pages(), &seen("4.0000000000")).await;
        assert_eq!(response.status, 422);
        assert!(response.text().contains("The offer has changed"), "{}", response.text());
        assert_eq!(remaining(&merchant, &customer).await, "20");
        assert_eq!(page.post(merchant.hosted_pages(), &seen("1.0000000000")).await.status, 303);
        assert_eq!(remaining(&merchant, &customer).await, "21");
    });
}
