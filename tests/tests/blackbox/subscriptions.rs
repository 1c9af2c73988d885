//! Subscriptions to free plans: their credit, pending changes, and where they are shown.

use chrono::{DateTime, Utc};
use farthing_tests::client::Request;
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// An id that does not exist.
const NOBODY: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn id(shown: &Value, name: &str) -> String {
    shown[name].as_str().unwrap_or_else(|| panic!("{name} in {shown}")).to_owned()
}

/// A free plan with `credit` per month and a bundle.
async fn free_plan(merchant: &Merchant, credit: &str) -> Value {
    let body = json!({
        "name": "Free", "period_amount": 0, "included_credit": credit,
        "credit_bundles": [{"name": "Five", "cost": "5", "credit_amount": "5"}],
    });
    merchant.post("/v1/plans", &body).await.expect(201)
}

async fn subscribe(merchant: &Merchant, customer: &Customer, plan: &Value) -> Value {
    let body = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
    merchant.post("/v1/subscriptions", &body).await.expect(201)["subscription"].clone()
}

#[test]
fn a_subscription_begins_with_its_credit_and_is_shown_everywhere() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = free_plan(&merchant, "5").await;
        let body = json!({
            "reference_id": "ada", "name": "Ada Lovelace", "email": "ada@example.com", "phone": "+15551234567",
        });
        let customer = merchant.post("/v1/customers", &body).await.expect(201);
        let customer_id = id(&customer, "customer_id");
        let before = merchant.get("/v1/connections/ada").await.expect(200);
        assert_eq!(before["has_credit_balance"], false);

        let body = json!({"connection_id": "ada", "subscription_config_id": plan["plan_id"]});
        let made = merchant.post("/v1/subscriptions", &body).await.expect(201)["subscription"].clone();
        let subscription_id = id(&made, "subscription_id");
        assert!(subscription_id.starts_with("sub_"), "{made}");
        let plan_id = plan["plan_id"].clone();
        let wallet_id = before["wallet"]["wallet_id"].clone();
        let started_at = made["started_at"].clone();
        let expected = json!({
            "subscription_id": subscription_id, "active_subscription_id": subscription_id,
            "plan_id": plan_id, "subscription_config_id": plan_id,
            "customer_id": customer_id, "connection_id": customer_id, "wallet_id": wallet_id,
            "status": "active", "auto_top_up_bundle_id": null, "started_at": started_at, "cancelled_at": null,
            "cycle_start_at": started_at, "cycle_end_at": made["cycle_end_at"], "pending_change": null,
            "plan": {
                "plan_id": plan_id, "subscription_config_id": plan_id, "merchant_id": merchant.id, "name": "Free",
                "period_amount": "0.0000000000", "included_credit": "5.0000000000",
                "billing_interval": "month", "rollover_type": "none", "bundle_rollover_type": "full",
            },
            "credits": {
                "total_remaining": "5.0000000000", "cycle_remaining": "5.0000000000",
                "bundle_remaining": "0.0000000000",
            },
            "customer": customer["contact"],
        });
        assert_eq!(made, expected);
        assert!(made["cycle_end_at"].as_str() > made["cycle_start_at"].as_str(), "{made}");

        let path = format!("/v1/subscriptions/{subscription_id}");
        assert_eq!(merchant.get(&path).await.expect(200), made);
        assert_eq!(merchant.get("/v1/subscriptions").await.expect(200)["data"], json!([made]));
        for path in ["/v1/customers/ada/subscription", "/v1/connections/ada/subscription"] {
            assert_eq!(merchant.get(path).await.expect(200), json!({"subscription": made}), "{path}");
        }
        let shown = merchant.get("/v1/customers/ada").await.expect(200);
        let short = json!({
            "subscription_id": subscription_id, "active_subscription_id": subscription_id,
            "plan_id": plan_id, "subscription_config_id": plan_id, "name": "Free",
        });
        assert_eq!(shown["subscription"], short);
        let connection = merchant.get("/v1/connections/ada").await.expect(200);
        assert_eq!(connection["has_credit_balance"], true);
        assert_eq!(
            connection["previous_usage_reset"], made["cycle_start_at"],
            "the cycle anchors the usage period"
        );
        assert_eq!(connection["next_usage_reset"], made["cycle_end_at"]);

        let day: u32 = started_at.as_str().unwrap()[8..10].parse().unwrap();
        let older = json!([{
            "active_subscription_id": subscription_id, "subscription_id": subscription_id, "wallet_id": wallet_id,
            "customer_id": customer_id, "connection_id": customer_id,
            "subscription_config_id": plan_id, "plan_id": plan_id,
            "started_at": started_at, "billing_anchor": day, "status": "active", "created_at": started_at,
            "subscription_config": {
                "subscription_config_id": plan_id, "plan_id": plan_id, "merchant_id": merchant.id, "name": "Free",
                "period_amount": "0.0000000000", "rollover_type": "none", "created_at": plan["created_at"],
            },
            "wallet": {
                "wallet_id": wallet_id, "phone": "+15551234567", "active_balance": "5.0000000000",
                "created_at": customer["created_at"], "email": "ada@example.com", "first_name": "Ada",
                "last_name": "Lovelace",
            },
        }]);
        assert_eq!(merchant.get("/v1/active-subscriptions").await.expect(200), older);
    });
}

#[test]
fn a_cycle_lasts_as_long_as_the_plans_billing_interval() {
    run(async {
        let merchant = Merchant::new().await;
        for (interval, days) in [("day", 1..=1), ("week", 7..=7), ("month", 28..=31), ("year", 365..=366)] {
            let body = json!({"name": interval, "period_amount": 0, "billing_interval": interval});
            let plan = merchant.post("/v1/plans", &body).await.expect(201);
            let customer = merchant.customer_called(interval, "0").await;
            let made = subscribe(&merchant, &customer, &plan).await;
            let shown = merchant.get(&format!("/v1/subscriptions/{}", id(&made, "subscription_id"))).await;
            let shown = shown.expect(200);
            assert_eq!(shown["plan"]["billing_interval"], interval);
            let day = |name: &str| id(&shown, name).parse::<DateTime<Utc>>().unwrap();
            let cycle = (day("cycle_end_at") - day("cycle_start_at")).num_days();
            assert!(days.contains(&cycle), "{interval}: {cycle} days");
        }
    });
}

#[test]
fn calls_draw_the_credit_before_the_balance() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let (customer, meter) = (merchant.customer("1").await, merchant.call_meter("0.75").await);
        let plan = free_plan(&merchant, "1").await;
        let made = subscribe(&merchant, &customer, &plan).await;
        let path = format!("/v1/subscriptions/{}", id(&made, "subscription_id"));
        let connection = format!("/v1/connections/{}", customer.id);
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        for (left, balance, has_credit) in
            [("0.2500000000", "1.0000000000", true), ("0.0000000000", "0.5000000000", false)]
        {
            merchant.fetch(&credential, &endpoint.url).await.expect(200);
            let shown = merchant.get(&path).await.expect(200);
            assert_eq!(shown["credits"]["cycle_remaining"], left);
            assert_eq!(shown["credits"]["total_remaining"], left);
            let shown = merchant.get(&connection).await.expect(200);
            assert_eq!(
                (&shown["wallet"]["balance"], &shown["has_credit_balance"]),
                (&json!(balance), &json!(has_credit))
            );
        }
        let older = merchant.get("/v1/active-subscriptions").await.expect(200);
        assert_eq!(older[0]["wallet"]["active_balance"], "0.5000000000");
    });
}

#[test]
fn an_invalid_subscription_is_refused_and_changes_nothing() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let (plan, other) = (free_plan(&merchant, "1").await, free_plan(&merchant, "1").await);
        let paid = json!({"name": "Ten", "period_amount": "10"});
        let paid = merchant.post("/v1/plans", &paid).await.expect(201);
        let bundle_of = |plan: &Value| plan["credit_bundles"][0]["credit_bundle_id"].clone();
        let before = merchant.events().await.len();
        let error = merchant.post("/v1/subscriptions", &json!({})).await.refused(400, "validation_error");
        let paths: Vec<_> =
            error["issues"].as_array().unwrap().iter().map(|issue| issue["path"].clone()).collect();
        assert_eq!(paths, [json!(["customer_id"]), json!(["plan_id"])]);
        let good = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
        for (member, value, status, code) in [
            ("customer_id", json!("nobody"), 404, "customer_not_found"),
            ("customer_id", json!(format!("con_{NOBODY}")), 404, "customer_not_found"),
            ("plan_id", json!(format!("sc_{NOBODY}")), 404, "plan_not_found"),
            ("plan_id", json!("nobody"), 400, "validation_error"),
            ("subscription_config_id", other["plan_id"].clone(), 400, "validation_error"),
            ("plan_id", paid["plan_id"].clone(), 400, "plan_not_free"),
            ("auto_top_up_bundle_id", json!(format!("cb_{NOBODY}")), 404, "credit_bundle_not_found"),
            ("auto_top_up_bundle_id", bundle_of(&other), 400, "credit_bundle_plan_mismatch"),
            ("auto_top_up_bundle_id", json!("x"), 400, "validation_error"),
        ] {
            let mut body = good.clone();
            body[member] = value;
            merchant.post("/v1/subscriptions", &body).await.refused(status, code);
        }
        assert_eq!(merchant.events().await.len(), before);
        subscribe(&merchant, &customer, &plan).await;
        merchant.post("/v1/subscriptions", &good).await.refused(409, "subscription_already_active");
        for name in ["nobody".to_owned(), format!("sub_{NOBODY}"), format!("sc_{NOBODY}")] {
            let path = format!("/v1/subscriptions/{name}");
            merchant.get(&path).await.refused(404, "subscription_not_found");
            merchant.patch(&path, &json!({})).await.refused(404, "subscription_not_found");
            merchant.delete(&path).await.refused(404, "subscription_not_found");
        }
    });
}

#[test]
fn the_bundle_that_is_bought_automatically_can_be_chosen() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let (plan, other) = (free_plan(&merchant, "1").await, free_plan(&merchant, "1").await);
        let bundle_of = |plan: &Value| plan["credit_bundles"][0]["credit_bundle_id"].clone();
        let default = json!({"default_auto_top_up_bundle_id": bundle_of(&plan)});
        merchant.patch(&format!("/v1/plans/{}", id(&plan, "plan_id")), &default).await.expect(200);
        let made = subscribe(&merchant, &customer, &plan).await;
        assert_eq!(made["auto_top_up_bundle_id"], bundle_of(&plan), "the plan's choice");
        let path = format!("/v1/subscriptions/{}", id(&made, "subscription_id"));
        for value in [Value::Null, bundle_of(&plan)] {
            let changed = merchant.patch(&path, &json!({"auto_top_up_bundle_id": value})).await.expect(200);
            assert_eq!(changed["auto_top_up_bundle_id"], value);
            assert_eq!(
                merchant.patch(&path, &json!({})).await.expect(200),
                changed,
                "absent members do not change"
            );
            assert_eq!(merchant.get(&path).await.expect(200), changed);
        }
        for (value, status, code) in [
            (bundle_of(&other), 400, "credit_bundle_plan_mismatch"),
            (json!(format!("cb_{NOBODY}")), 404, "credit_bundle_not_found"),
            (json!(7), 400, "validation_error"),
        ] {
            let body = json!({"auto_top_up_bundle_id": value});
            merchant.patch(&path, &body).await.refused(status, code);
        }
    });
}

#[test]
fn a_cancelled_subscription_ends_with_its_cycle() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let plan = free_plan(&merchant, "1").await;
        let made = subscribe(&merchant, &customer, &plan).await;
        let path = format!("/v1/subscriptions/{}", id(&made, "subscription_id"));
        let cancelled = merchant.delete(&path).await.expect(200);
        let ending = cancelled["subscription"].clone();
        let answer = json!({
            "success": true, "deleted": true, "id": made["subscription_id"], "subscription": ending,
        });
        assert_eq!(cancelled, answer);
        let pending = json!({"type": "cancellation", "effective_at": made["cycle_end_at"]});
        assert_eq!((&ending["pending_change"], &ending["status"]), (&pending, &json!("active")));
        assert_eq!(merchant.get(&path).await.expect(200), ending);
        assert_eq!(merchant.delete(&path).await.expect(200), answer, "a second cancellation changes nothing");
    });
}

#[test]
fn deleting_a_customer_ends_its_subscription_which_stays_listed() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = free_plan(&merchant, "1").await;
        let (gone, kept) =
            (merchant.customer_called("gone", "0").await, merchant.customer_called("kept", "0").await);
        let first = subscribe(&merchant, &gone, &plan).await;
        let second = subscribe(&merchant, &kept, &plan).await;
        merchant.delete("/v1/customers/gone").await.expect(200);
        let path = format!("/v1/subscriptions/{}", id(&first, "subscription_id"));
        let ended = merchant.get(&path).await.expect(200);
        assert_eq!((&ended["status"], ended["cancelled_at"].is_string()), (&json!("cancelled"), true));
        assert_eq!(ended["credits"]["total_remaining"], "0.0000000000");
        merchant.delete(&path).await.refused(404, "subscription_not_found");
        for (filter, listed) in [
            ("", json!([second, ended])),
            ("?status=all", json!([second, ended])),
            ("?status=active", json!([second])),
            ("?status=cancelled", json!([ended])),
            (&format!("?customer_id={}", gone.id), json!([ended])),
            (&format!("?connection_id={}&status=active", gone.id), json!([])),
            ("?customer_id=kept", json!([second])),
            ("?customer_id=nobody", json!([])),
        ] {
            let shown = merchant.get(&format!("/v1/subscriptions{filter}")).await.expect(200);
            assert_eq!(shown["data"], listed, "{filter}");
        }
        let error = merchant.get("/v1/subscriptions?status=paused").await.refused(400, "validation_error");
        assert_eq!(error["issues"][0]["path"], json!(["status"]));
        let older = merchant.get("/v1/active-subscriptions").await.expect(200);
        assert_eq!((&older[0]["status"], older[0].get("cancelled_at")), (&json!("active"), None));
        assert_eq!(
            (&older[1]["status"], &older[1]["cancelled_at"]),
            (&json!("cancelled"), &ended["cancelled_at"])
        );
    });
}

#[test]
fn all_subscriptions_of_a_wallet_show_the_same_sum() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("2").await;
        let plan = free_plan(&merchant, "1").await;
        let first = subscribe(&merchant, &customer, &plan).await;
        let path = format!("/v1/subscriptions/{}", id(&first, "subscription_id"));
        merchant.delete(&path).await.expect(200);
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 32 * 24 * 60 * 60})).await.expect(200);
        eventually("it has ended", async || {
            (merchant.get(&path).await.expect(200)["status"] == "cancelled").then_some(())
        })
        .await;
        subscribe(&merchant, &customer, &plan).await;
        let older = merchant.get("/v1/active-subscriptions").await.expect(200);
        let balances: Vec<_> =
            older.as_array().unwrap().iter().map(|shown| &shown["wallet"]["active_balance"]).collect();
        assert_eq!(balances, ["3.0000000000"; 2], "the balance and the credit of the second");
    });
}

#[test]
fn subscriptions_are_listed_newest_first_a_page_at_a_time() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = free_plan(&merchant, "1").await;
        let mut made = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            let customer = merchant.customer_called(name, "0").await;
            made.insert(0, subscribe(&merchant, &customer, &plan).await);
        }
        for filter in ["", "?status=active", "?status=all"] {
            for limit in [1, 2, 5] {
                assert_eq!(
                    merchant.pages(&format!("/v1/subscriptions{filter}"), limit).await,
                    made,
                    "{filter}"
                );
            }
        }
        assert_eq!(merchant.pages("/v1/subscriptions?customer_id=c", 1).await, [made[2].clone()]);
    });
}

#[test]
fn a_repeated_creation_creates_one_subscription() {
    run(async {
        let merchant = Merchant::new().await;
        let customer = merchant.customer("0").await;
        let plan = free_plan(&merchant, "1").await;
        let body = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
        let again = async |gateway: usize| {
            let request =
                Request::new("POST", "/v1/subscriptions").json(&body).header("Idempotency-Key", "one");
            let address = merchant.instance.gateway(gateway);
            request.bearer(&merchant.secret_key).send(address).await.unwrap()
        };
        let (first, repeated) = (again(0).await, again(1).await);
        assert_eq!((first.status, repeated.status, &first.body), (201, 201, &repeated.body));
        assert_eq!(repeated.head.header("idempotency-replayed"), Some("true"));
    });
}
