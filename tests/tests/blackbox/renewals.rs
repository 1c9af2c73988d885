//! Renewals of paid plans: one charge per cycle at its instant, for every anchor day of the month; declined cards, and
//! recovery with a new one. Charges are read from the payment processor.

use chrono::{DateTime, Datelike as _, NaiveDate, TimeDelta, Utc};
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::provider::json as answer_json;
use farthing_tests::recurring::{IS_DECLINED, Means, PAYS, instant};
use farthing_tests::run;
use farthing_tests::wait::eventually;
use rust_decimal::Decimal;
use serde_json::{Value, json};

/// The days of the month on which the cycles after the first begin, for subscriptions that began on the 29th, 30th and 31st
/// of January before a leap year: from February to February and March.
const BEGIN_ON: [[u32; 3]; 14] = [
    [28, 28, 28],
    [29, 30, 31],
    [29, 30, 30],
    [29, 30, 31],
    [29, 30, 30],
    [29, 30, 31],
    [29, 30, 31],
    [29, 30, 30],
    [29, 30, 31],
    [29, 30, 30],
    [29, 30, 31],
    [29, 30, 31],
    [29, 29, 29],
    [29, 30, 31],
];

async fn monthly(merchant: &Merchant, price: &str, credit: &str) -> Value {
    let body = json!({"name": format!("{price} a month"), "period_amount": price, "included_credit": credit});
    merchant.post("/v1/plans", &body).await.expect(201)
}

fn id_of(subscription: &Value) -> String {
    subscription["subscription_id"].as_str().unwrap().to_owned()
}

fn paid(amount: &str) -> (Decimal, Option<String>) {
    (amount.parse().unwrap(), None)
}

fn declined(amount: &str) -> (Decimal, Option<String>) {
    (amount.parse().unwrap(), Some("card_declined".to_owned()))
}

/// A free subscription with daily cycles. Once its next cycle has begun, the schedulers have seen the clock.
struct DailyProbe(String);

impl DailyProbe {
    async fn begin(merchant: &Merchant) -> Self {
        let plan = json!({"name": "daily", "period_amount": 0, "billing_interval": "day"});
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let customer = merchant.post("/v1/customers", &json!({})).await.expect(201);
        let body = json!({"customer_id": customer["customer_id"], "plan_id": plan["plan_id"]});
        Self(id_of(&merchant.post("/v1/subscriptions", &body).await.expect(201)["subscription"].clone()))
    }

    /// Waits until its next cycle has begun; then cancels it.
    async fn wait_for_renewal(self, merchant: &Merchant) {
        merchant.comes_to(&self.0, "subscription.renewed", 1).await;
        merchant.delete(&format!("/v1/subscriptions/{}", self.0)).await.expect(200);
    }
}

/// The payments requested for the subscription's cycles after the first, in order.
async fn renewal_payments(merchant: &Merchant, subscription_id: &str) -> Vec<Logged> {
    let mut payments = merchant.of_kind("payment.requested").await;
    payments.retain(|event| {
        let purpose = &event.body["purpose"];
        purpose["for"] == "renewal" && purpose["subscription_id"] == subscription_id
    });
    payments
}

#[test]
fn cycles_that_begin_at_the_end_of_a_month_are_clamped_and_each_is_charged_once_at_its_instant() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let plan = monthly(&merchant, "9.99", "1").await;
        let this_year = merchant.clock_by(1).await.year();
        let year = (this_year + 1..this_year + 5).find(|year| year % 4 == 3).unwrap();
        let at = |months: u32, day: u32, time: (u32, u32)| -> DateTime<Utc> {
            let date =
                NaiveDate::from_ymd_opt(year + i32::try_from(months / 12).unwrap(), months % 12 + 1, day);
            date.unwrap().and_hms_opt(time.0, time.1, 0).unwrap().and_utc()
        };
        let mut subscribers: Vec<(Customer, String, DateTime<Utc>)> = Vec::new();
        for day in [29, 30, 31] {
            merchant.clock_to(at(0, day, (10, 0))).await;
            let customer = merchant.customer_called(&format!("on the {day}th"), "0").await;
            let subscription = merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
            let anchor = instant(&subscription["cycle_start_at"]);
            assert_eq!(anchor.day(), day);
            subscribers.push((customer, id_of(&subscription), anchor));
        }
        for (number, days) in BEGIN_ON.iter().enumerate() {
            let months = u32::try_from(number).unwrap() + 1;
            // Both ends of February are tested from a minute before.
            if days[0] == days[2] {
                let first = at(months, days[0], (10, 0));
                merchant.clock_to(first - TimeDelta::seconds(86_460)).await;
                let probe = DailyProbe::begin(&merchant).await;
                merchant.clock_to(first - TimeDelta::seconds(50)).await;
                probe.wait_for_renewal(&merchant).await;
                for (_, id, _) in &subscribers {
                    assert_eq!(renewal_payments(&merchant, id).await.len(), number, "a minute too early");
                }
            }
            merchant.clock_to(at(months, days[2], (10, 30))).await;
            for ((customer, id, anchor), day) in subscribers.iter().zip(days) {
                merchant.comes_to(id, "subscription.renewed", number + 1).await;
                let shown = merchant.subscription_of(customer).await;
                let begins = at(months, *day, (0, 0)).date_naive().and_time(anchor.time()).and_utc();
                assert_eq!(instant(&shown["cycle_start_at"]), begins, "{}", customer.reference_id);
                assert_eq!(
                    shown["credits"]["cycle_remaining"], "1.0000000000",
                    "the remaining credit expired"
                );
                let connection = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
                assert_eq!(
                    (&connection["previous_usage_reset"], &connection["next_usage_reset"]),
                    (&shown["cycle_start_at"], &shown["cycle_end_at"])
                );
                // The payment was requested at the start of this cycle, and for this cycle.
                let payments = renewal_payments(&merchant, id).await;
                assert_eq!(payments.len(), number + 1);
                let payment = payments.last().unwrap();
                assert!(payment.occurred_at >= begins && payment.occurred_at < begins + TimeDelta::days(4));
                assert_eq!(payment.body["purpose"]["cycle_number"], json!(months));
            }
        }
        let older = merchant.get("/v1/active-subscriptions").await.expect(200);
        let older = older.as_array().unwrap();
        for ((_, id, _), day) in subscribers.iter().zip([29, 30, 31]) {
            let shown = older.iter().find(|shown| shown["active_subscription_id"] == id.as_str()).unwrap();
            assert_eq!(shown["billing_anchor"], json!(day), "the anchor day does not change");
        }
        assert_eq!(merchant.charges().await, vec![paid("9.99"); 3 * 15]);
    });
}

/// A customer at the end of the first cycle, whose card is declined from the second cycle on.
async fn unable(merchant: &Merchant, plan: &Value) -> (Customer, Value) {
    let customer = merchant.customer("0").await;
    let subscription = merchant.subscribe(&customer, plan, Means::Card(PAYS)).await;
    merchant.leave_card(&customer, IS_DECLINED).await;
    (customer, subscription)
}

/// Waits until the renewal is due and has failed for the first time.
async fn fails(merchant: &Merchant, subscription: &Value) -> Logged {
    merchant.clock_to(instant(&subscription["cycle_end_at"])).await;
    merchant.comes_to(&id_of(subscription), "subscription.renewal_failed", 1).await.remove(0)
}

fn retry_at(failed: &Logged) -> DateTime<Utc> {
    instant(&failed.body["retry_at"])
}

#[test]
fn a_failed_renewal_is_retried_daily_three_times_and_then_the_subscription_ends() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let receiver = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let events = ["subscription.started", "subscription.cancelled"];
        merchant.post("/v1/webhooks", &json!({"url": receiver.url, "events": events})).await.expect(201);
        let plan = monthly(&merchant, "10", "8").await;
        let (customer, began) = unable(&merchant, &plan).await;
        let id = id_of(&began);
        let meter = merchant.call_meter("0.5").await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let credential = merchant.billing(&customer, &meter);
        merchant.fetch(&credential, &endpoint.url).await.expect(200);

        let end = instant(&began["cycle_end_at"]);
        merchant.clock_to(end - TimeDelta::hours(1)).await;
        let probe = DailyProbe::begin(&merchant).await;
        let failed = fails(&merchant, &began).await;
        assert_eq!(failed.body["attempt"], json!(1));
        assert_eq!(retry_at(&failed), failed.occurred_at + TimeDelta::days(1));
        // The old credit has expired and there is no new one; the cycle has not changed.
        let shown = merchant.subscription_of(&customer).await;
        assert_eq!(shown["credits"]["total_remaining"], "0.0000000000");
        assert_eq!((&shown["status"], &shown["cycle_end_at"]), (&json!("active"), &began["cycle_end_at"]));
        let ended = merchant.comes_to(&id, "subscription.cycle_ended", 1).await.remove(0);
        assert_eq!((ended.text("expired"), instant(&ended.body["ended_at"])), ("7.5000000000", end));
        merchant.fetch(&credential, &endpoint.url).await.refused(402, "insufficient_balance");
        let connection = merchant.get(&format!("/v1/connections/{}", customer.id)).await.expect(200);
        assert_eq!(connection["has_credit_balance"], false);

        // It is not retried within the day.
        merchant.clock_to(end + TimeDelta::minutes(23 * 60 + 10)).await;
        probe.wait_for_renewal(&merchant).await;
        assert_eq!(renewal_payments(&merchant, &id).await.len(), 1);
        let mut last = failed;
        for attempt in 2..=4_usize {
            merchant.clock_to(retry_at(&last)).await;
            let failed = merchant.comes_to(&id, "subscription.renewal_failed", attempt).await.pop().unwrap();
            assert_eq!(failed.body["attempt"], json!(attempt));
            let tried = renewal_payments(&merchant, &id).await.pop().unwrap().occurred_at;
            assert!(tried >= retry_at(&last) && tried < retry_at(&last) + TimeDelta::hours(1), "{tried}");
            let status = merchant.get(&format!("/v1/subscriptions/{id}")).await.expect(200)["status"].clone();
            assert_eq!(status, if attempt == 4 { "cancelled" } else { "active" }, "attempt {attempt}");
            last = failed;
        }
        let cancelled = merchant.comes_to(&id, "subscription.cancelled", 1).await.remove(0);
        assert_eq!((cancelled.text("reason"), cancelled.text("expired")), ("payment_failed", "0.0000000000"));
        assert_eq!(merchant.subscription_of(&customer).await, Value::Null);
        let charged = [vec![paid("10")], vec![declined("10"); 4]].concat();
        assert_eq!(merchant.charges().await, charged);
        assert_eq!(merchant.balance(&customer).await, "0.0000000000");

        // The subscription has ended: a month later nothing is charged, and the customer can subscribe again.
        merchant.clock_by(40 * 86_400).await;
        let again = merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        assert_ne!(id_of(&again), id);
        assert_eq!(again["credits"]["total_remaining"], "8.0000000000");
        assert_eq!(merchant.charges().await, [charged, vec![paid("10")]].concat());
        let listed =
            merchant.get(&format!("/v1/subscriptions?customer_id={}", customer.id)).await.expect(200);
        let statuses: Vec<_> =
            listed["data"].as_array().unwrap().iter().map(|shown| shown["status"].clone()).collect();
        assert_eq!(statuses, ["active", "cancelled"]);
        let delivered = eventually("the webhook is delivered", async || {
            let delivered: Vec<Value> = receiver
                .calls()
                .iter()
                .map(|call| serde_json::from_slice::<Value>(&call.body).unwrap())
                .filter(|delivery| delivery["data"]["customer"]["customer_id"] == customer.id.as_str())
                .map(|delivery| {
                    json!([delivery["event"], delivery["data"]["subscription"]["subscription_id"]])
                })
                .collect();
            (delivered.len() >= 3).then_some(delivered)
        })
        .await;
        assert_eq!(
            delivered,
            [json!([events[0], id]), json!([events[1], id]), json!([events[0], id_of(&again)])],
            "in order"
        );
    });
}

#[test]
fn a_new_card_pays_a_failed_renewal_and_the_cycles_keep_their_anchor() {
    run(async {
        let merchant = Merchant::new().await;
        let plan = monthly(&merchant, "10", "8").await;
        let (customer, began) = unable(&merchant, &plan).await;
        let id = id_of(&began);
        let failed = fails(&merchant, &began).await;
        merchant.clock_to(retry_at(&failed)).await;
        let failed = merchant.comes_to(&id, "subscription.renewal_failed", 2).await.pop().unwrap();
        merchant.leave_card(&customer, PAYS).await;
        assert_eq!(
            renewal_payments(&merchant, &id).await.len(),
            2,
            "at the time of the retry, not when the card was added"
        );
        merchant.clock_to(retry_at(&failed)).await;
        let renewed = merchant.comes_to(&id, "subscription.renewed", 1).await.remove(0);
        assert_eq!(renewed.body["cycle"]["number"], json!(1));
        let shown = merchant.subscription_of(&customer).await;
        assert_eq!(shown["cycle_start_at"], began["cycle_end_at"], "the cycle that was due");
        assert_eq!(shown["credits"]["total_remaining"], "8.0000000000");
        let charged = [paid("10"), declined("10"), declined("10"), paid("10")];
        assert_eq!(merchant.charges().await, charged);

        // The next renewal is due a month after the anchor, not after the late payment; its attempts are counted from one.
        let second_end = instant(&shown["cycle_end_at"]);
        let days = (second_end - instant(&shown["cycle_start_at"])).num_days();
        assert!((28..=31).contains(&days), "{shown}");
        merchant.leave_card(&customer, IS_DECLINED).await;
        merchant.clock_to(second_end).await;
        let failed = merchant.comes_to(&id, "subscription.renewal_failed", 3).await.pop().unwrap();
        assert_eq!((&failed.body["attempt"], &failed.body["cycle_number"]), (&json!(1), &json!(2)));

        // A cancellation during dunning ends the subscription at once: nothing is retried.
        let path = format!("/v1/subscriptions/{id}");
        let ended = merchant.delete(&path).await.expect(200)["subscription"].clone();
        assert_eq!((&ended["status"], &ended["pending_change"]), (&json!("cancelled"), &Value::Null));
        let probe = DailyProbe::begin(&merchant).await;
        merchant.clock_to(retry_at(&failed) + TimeDelta::hours(1)).await;
        probe.wait_for_renewal(&merchant).await;
        assert_eq!(merchant.charges().await, [&charged[..], &[declined("10")]].concat());
        merchant.delete(&path).await.refused(404, "subscription_not_found");
    });
}

#[test]
fn missed_cycles_are_each_charged_once() {
    run(async {
        let merchant = Merchant::new().await;
        let body = json!({
            "name": "weekly", "period_amount": "3", "billing_interval": "week", "rollover_type": "full",
        });
        let plan = merchant.post("/v1/plans", &body).await.expect(201);
        let customer = merchant.customer("0").await;
        let began = merchant.subscribe(&customer, &plan, Means::Card(PAYS)).await;
        // 30 days: four whole weeks and two days.
        merchant.clock_by(30 * 86_400).await;
        let renewed = merchant.comes_to(&id_of(&began), "subscription.renewed", 4).await;
        let numbers: Vec<_> = renewed.iter().map(|event| event.body["cycle"]["number"].clone()).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        let shown = merchant.subscription_of(&customer).await;
        let start = instant(&began["cycle_start_at"]);
        assert_eq!(instant(&shown["cycle_start_at"]), start + TimeDelta::days(28));
        assert_eq!(instant(&shown["cycle_end_at"]), start + TimeDelta::days(35));
        assert_eq!(shown["credits"]["cycle_remaining"], "15.0000000000");
        assert_eq!(merchant.charges().await, vec![paid("3"); 5]);
    });
}
