//! What webhooks are told of subscriptions, end to end: that one began and that it ended, in order with all other news of
//! the customer; what happens in between is no news.

use std::collections::BTreeMap;

use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{Means, PAYS, Page, instant};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

/// Declined at once.
const DECLINED: &str = "4000000000000002";

/// The news of each customer, in the order they came: the event and the subscription's status, plan and id, where there is
/// one.
type News = BTreeMap<String, Vec<(String, Value)>>;

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
fn the_beginning_and_the_end_of_each_subscription_are_told_once_and_in_their_customers_order() {
    run(async {
        let merchant = Merchant::new().await;
        // The first two times nobody takes what is told: it comes again, and in order still.
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
        let mut wanted = News::new();
        let named = async |name: &str| merchant.customer_called(name, "0").await;
        let created = || vec![("customer.created".to_owned(), Value::Null)];
        let told = |event: &str, of: Value| (event.to_owned(), of);

        // One that is renewed, and ends when it was to.
        let ends = named("ends").await;
        let began = merchant.subscribe(&ends, &free, Means::None).await;
        // One that becomes a dearer one, and then a cheaper one.
        let changes = named("changes").await;
        let changing = merchant.subscribe(&changes, &small, Means::Card(PAYS)).await;
        merchant.subscribe(&changes, &big, Means::Known).await;
        merchant.subscribe(&changes, &small, Means::None).await;
        // One whose customer goes; and one that never began, for its card was declined.
        let goes = named("goes").await;
        let going = merchant.subscribe(&goes, &small, Means::Card(PAYS)).await;
        merchant.delete(&format!("/v1/customers/{}", goes.id)).await.expect(200);
        let never = named("never").await;
        let asked =
            json!({"checkout_mode": "subscription", "plan_id": big["plan_id"], "customer_id": never.id});
        let page = Page::of(&merchant, &asked).await;
        let declined = page
            .send(merchant.gateway(), big["period_amount"].as_str().unwrap(), Means::Card(DECLINED))
            .await;
        assert_eq!(declined.status, 422, "{}", declined.text());

        merchant.clock_to(instant(&began["cycle_end_at"])).await;
        let id = began["subscription_id"].as_str().unwrap();
        merchant.comes_to(id, "subscription.renewed", 1).await;
        merchant.comes_to(changing["subscription_id"].as_str().unwrap(), "subscription.renewed", 1).await;
        let ending = merchant.delete(&format!("/v1/subscriptions/{id}")).await.expect(200);
        merchant.clock_to(instant(&ending["cycle_end_at"])).await;
        merchant.comes_to(id, "subscription.cancelled", 1).await;
        // The same customer begins once more.
        let again = merchant.subscribe(&ends, &small, Means::Card(PAYS)).await;

        let mut expect = |customer: &Customer, news: Vec<(String, Value)>| {
            wanted.insert(customer.id.clone(), created().into_iter().chain(news).collect());
        };
        expect(
            &ends,
            vec![
                told("subscription.started", of_subscription(&began, "active")),
                told("subscription.cancelled", of_subscription(&began, "cancelled")),
                told("subscription.started", of_subscription(&again, "active")),
            ],
        );
        expect(&changes, vec![told("subscription.started", of_subscription(&changing, "active"))]);
        expect(
            &goes,
            vec![
                told("subscription.started", of_subscription(&going, "active")),
                told("subscription.cancelled", of_subscription(&going, "cancelled")),
                told("customer.deleted", Value::Null),
            ],
        );
        expect(&never, Vec::new());
        eventually("everything is told, in order, and nothing else", async || {
            let mut news = News::new();
            let mut ids = std::collections::BTreeSet::new();
            for call in receiver.calls() {
                let told: Value = serde_json::from_slice(&call.body).unwrap();
                // What was not taken comes again under its own id.
                if ids.insert(told["webhook_event_id"].to_string()) {
                    let customer = told["data"]["customer"]["customer_id"].as_str().unwrap().to_owned();
                    let event = told["event"].as_str().unwrap().to_owned();
                    news.entry(customer).or_default().push((event, told["data"]["subscription"].clone()));
                }
            }
            (news == wanted).then_some(())
        })
        .await;
        let deliveries = merchant.get("/v1/webhooks").await.expect(200)["data"][0]["webhook_id"].clone();
        let path = format!("/v1/webhooks/{}/deliveries", deliveries.as_str().unwrap());
        let deliveries = merchant.pages(&path, 100).await;
        assert_eq!(deliveries.len(), 4 + 6 + 1, "nothing else was queued: {deliveries:?}");
    });
}
