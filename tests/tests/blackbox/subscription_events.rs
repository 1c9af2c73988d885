//! Webhook events of subscriptions end to end: the start and the end of each, in order with the customer's other events.
//! Changes in between have no event.

use std::collections::BTreeMap;

use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{Means, PAYS, Page, instant};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// A card that is declined.
const DECLINED: &str = "4000000000000002";

/// The deliveries of each customer in order: the event, and the subscription's status, plan and id if there is one.
type Deliveries = BTreeMap<String, Vec<(String, Value)>>;

fn of_subscription(subscription: &Value, status: &str) -> Value {
    json!({
        "subscription_id": subscription["subscription_id"], "plan_id": subscription["plan_id"], "status": status,
    })
}

async fn plan(merchant: &Merchant, name: &str, price: u64) -> Value {
    let body = json!({"name": name, "period_amount": price, "billing_interval": "week"});
    merchant.post("/v1/plans", &body).await.expect(201)
}

#[test]
fn the_start_and_the_end_of_each_subscription_are_delivered_once_and_in_order() {
    run(async {
        let merchant = Merchant::new().await;
        // The receiver refuses the first two attempts: deliveries are retried in order.
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let receiver = merchant.instance.provider.endpoint(move |_| {
            let tried = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            answer_json(if tried < 2 { 500 } else { 200 }, &json!({}))
        });
        merchant.post("/v1/webhooks", &json!({"url": receiver.url})).await.expect(201);
        let (free, small, big) = (
            plan(&merchant, "Free", 0).await,
            plan(&merchant, "Small", 10).await,
            plan(&merchant, "Big", 20).await,
        );
        let mut wanted = Deliveries::new();
        let named = async |name: &str| merchant.customer_called(name, "0").await;
        let created = || vec![("customer.created".to_owned(), Value::Null)];
        let event = |event: &str, of: Value| (event.to_owned(), of);

        // A subscription that is renewed, cancelled and ended.
        let ends = named("ends").await;
        let began = merchant.subscribe(&ends, &free, Means::None).await;
        // One that is upgraded and then downgraded.
        let changes = named("changes").await;
        let changing = merchant.subscribe(&changes, &small, Means::Card(PAYS)).await;
        merchant.subscribe(&changes, &big, Means::Known).await;
        merchant.subscribe(&changes, &small, Means::None).await;
        // One whose customer is deleted, and one that never began because the card was declined.
        let goes = named("goes").await;
        let going = merchant.subscribe(&goes, &small, Means::Card(PAYS)).await;
        merchant.delete(&format!("/v1/customers/{}", goes.id)).await.expect(200);
        let never = named("never").await;
        let asked =
            json!({"checkout_mode": "subscription", "plan_id": big["plan_id"], "customer_id": never.id});
        let page = Page::of(&merchant, &asked).await;
        let declined = page
            .send(merchant.hosted_pages(), big["period_amount"].as_str().unwrap(), Means::Card(DECLINED))
            .await;
        assert_eq!(declined.status, 422, "{}", declined.text());

        merchant.clock_to(instant(&began["cycle_end_at"])).await;
        let id = began["subscription_id"].as_str().unwrap();
        merchant.comes_to(id, "subscription.renewed", 1).await;
        merchant.comes_to(changing["subscription_id"].as_str().unwrap(), "subscription.renewed", 1).await;
        let ending =
            merchant.delete(&format!("/v1/subscriptions/{id}")).await.expect(200)["subscription"].clone();
        merchant.clock_to(instant(&ending["cycle_end_at"])).await;
        merchant.comes_to(id, "subscription.cancelled", 1).await;
        // The same customer subscribes again.
        let again = merchant.subscribe(&ends, &small, Means::Card(PAYS)).await;

        let mut expect = |customer: &Customer, events: Vec<(String, Value)>| {
            wanted.insert(customer.id.clone(), created().into_iter().chain(events).collect());
        };
        expect(
            &ends,
            vec![
                event("subscription.started", of_subscription(&began, "active")),
                event("subscription.cancelled", of_subscription(&began, "cancelled")),
                event("subscription.started", of_subscription(&again, "active")),
            ],
        );
        expect(&changes, vec![event("subscription.started", of_subscription(&changing, "active"))]);
        expect(
            &goes,
            vec![
                event("subscription.started", of_subscription(&going, "active")),
                event("subscription.cancelled", of_subscription(&going, "cancelled")),
                event("customer.deleted", Value::Null),
            ],
        );
        expect(&never, Vec::new());
        eventually("exactly the expected events are delivered in order", async || {
            let mut events = Deliveries::new();
            let mut ids = std::collections::BTreeSet::new();
            for call in receiver.calls() {
                let delivery: Value = serde_json::from_slice(&call.body).unwrap();
                // A refused delivery is retried under its own id.
                if ids.insert(delivery["webhook_event_id"].to_string()) {
                    let customer = delivery["data"]["customer"]["customer_id"].as_str().unwrap().to_owned();
                    let event = delivery["event"].as_str().unwrap().to_owned();
                    events
                        .entry(customer)
                        .or_default()
                        .push((event, delivery["data"]["subscription"].clone()));
                }
            }
            (events == wanted).then_some(())
        })
        .await;
        let deliveries = merchant.get("/v1/webhooks").await.expect(200)["data"][0]["webhook_id"].clone();
        let path = format!("/v1/webhooks/{}/deliveries", deliveries.as_str().unwrap());
        let deliveries = merchant.pages(&path, 100).await;
        assert_eq!(deliveries.len(), 4 + 6 + 1, "nothing else was queued: {deliveries:?}");
    });
}
