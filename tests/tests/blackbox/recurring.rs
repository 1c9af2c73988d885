//! Recurring billing end to end: plan, subscription, calls on its credit, a month, the next cycle.

use farthing_tests::merchant::{Merchant, token};
use farthing_tests::provider::json as answer_json;
use farthing_tests::run;
use farthing_tests::wait::eventually;
use serde_json::{Value, json};

const DAY: i64 = 86_400;

async fn credits(merchant: &Merchant, subscription_id: &str) -> Value {
    merchant.get(&format!("/v1/subscriptions/{subscription_id}")).await.expect(200)["credits"].clone()
}

#[test]
fn a_plans_credit_pays_for_its_meters_calls_and_rolls_over_into_the_next_cycle() {
    run(async {
        let merchant = Merchant::funded("5").await;
        let customer = merchant.customer("0.2").await;
        let (of_plan, other) = (merchant.call_meter("0.5").await, merchant.call_meter("0.1").await);
        let plan = json!({
            "name": "Starter", "period_amount": "0", "included_credit": "2", "billing_interval": "month",
            "rollover_type": "full", "bundle_rollover_type": "none", "meter_ids": [of_plan.id],
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        let subscribe = json!({"customer_id": customer.id, "plan_id": plan["plan_id"]});
        let subscription =
            merchant.post("/v1/subscriptions", &subscribe).await.expect(201)["subscription"].clone();
        let id = subscription["subscription_id"].as_str().unwrap();
        merchant.post("/v1/subscriptions", &subscribe).await.refused(409, "subscription_already_active");

        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let on = |meter: &str| {
            token(
                &json!({"secret_key": merchant.secret_key, "customer_id": customer.id, "meter_slug": meter}),
            )
        };
        // 2 of credit and 0.2 of balance: three calls of the plan's meter at 0.5, with the service charge on the merchant.
        for left in ["1.5000000000", "1.0000000000", "0.5000000000"] {
            merchant.fetch(&on(&of_plan.slug), &endpoint.url).await.expect(200);
            assert_eq!(credits(&merchant, id).await["cycle_remaining"], json!(left));
        }
        // Calls of the other meter are not covered by the plan: the balance pays for them while it lasts.
        merchant.fetch(&on(&other.slug), &endpoint.url).await.expect(200);
        merchant.fetch(&on(&other.slug), &endpoint.url).await.expect(200);
        merchant.fetch(&on(&other.slug), &endpoint.url).await.refused(402, "insufficient_balance");
        assert_eq!(credits(&merchant, id).await["cycle_remaining"], json!("0.5000000000"));
        assert_eq!(merchant.balance(&customer).await, "0.0000000000");

        // A month passes: the remaining credit rolls over, and the new cycle's credit is added once, by one of the gateways.
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 32 * DAY})).await.expect(200);
        eventually("the next cycle begins", async || {
            (credits(&merchant, id).await["cycle_remaining"] == json!("2.5000000000")).then_some(())
        })
        .await;
        let renewed = merchant.get(&format!("/v1/subscriptions/{id}")).await.expect(200);
        assert_eq!(renewed["cycle_start_at"], subscription["cycle_end_at"]);
        for _ in 0..5 {
            merchant.fetch(&on(&of_plan.slug), &endpoint.url).await.expect(200);
        }
        merchant.fetch(&on(&of_plan.slug), &endpoint.url).await.refused(402, "insufficient_balance");
        assert_eq!(credits(&merchant, id).await["total_remaining"], json!("0.0000000000"));

        // The subscription ends with its cycle, and its credit expires.
        let pending =
            merchant.delete(&format!("/v1/subscriptions/{id}")).await.expect(200)["subscription"].clone();
        assert_eq!(pending["status"], json!("active"));
        assert_eq!(pending["pending_change"]["type"], json!("cancellation"));
        merchant.post("/v1/test_clock", &json!({"advance_seconds": 32 * DAY})).await.expect(200);
        eventually("the subscription ends", async || {
            let shown = merchant.get(&format!("/v1/subscriptions/{id}")).await.expect(200);
            (shown["status"] == json!("cancelled")).then_some(())
        })
        .await;
        let kinds: Vec<_> = merchant.events().await.into_iter().map(|event| event.kind).collect();
        let count = |kind: &str| kinds.iter().filter(|known| *known == kind).count();
        assert_eq!((count("subscription.renewed"), count("subscription.cycle_ended")), (1, 2));
        assert_eq!(count("subscription.cancelled"), 1);
        merchant.nothing_is_held().await;
    });
}
