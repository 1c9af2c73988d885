//! Renewals when a gateway dies: every gateway schedules, and each cycle begins once.

use std::collections::BTreeMap;

use farthing_tests::client::Request;
use farthing_tests::instance::{is_running, kill};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::wait::within;
use serde_json::{Value, json};

use crate::{instance, put_away, rounds};

const SUBSCRIBERS: usize = 40;

const DAY: i64 = 86_400;

/// Each subscription's renewals so far.
async fn renewals(merchant: &Merchant) -> BTreeMap<String, usize> {
    let mut renewals = BTreeMap::new();
    for event in merchant.events().await {
        let body: Value = serde_json::from_str(&event.text).unwrap();
        let id = body["subscription_id"].as_str().map(str::to_owned);
        match (event.kind.as_str(), id) {
            ("subscription.started", Some(id)) => drop(renewals.entry(id).or_insert(0)),
            ("subscription.renewed", Some(id)) => *renewals.entry(id).or_insert(0) += 1,
            _ => {}
        }
    }
    renewals
}

#[test]
fn a_gateway_that_dies_in_the_middle_of_renewals_leaves_one_renewal_of_each() {
    run(async {
        let instance = instance().await;
        let merchant = Merchant::of(instance).await;
        let plan = json!({
            "name": "daily", "period_amount": "0", "included_credit": "1.5", "billing_interval": "day",
            "rollover_type": "full", "bundle_rollover_type": "full",
        });
        let plan = merchant.post("/v1/plans", &plan).await.expect(201);
        for _ in 0..SUBSCRIBERS {
            let customer = merchant.post("/v1/customers", &json!({})).await.expect(201);
            let body = json!({"customer_id": customer["customer_id"], "plan_id": plan["plan_id"]});
            merchant.post("/v1/subscriptions", &body).await.expect(201);
        }
        for round in 0..rounds() {
            let due = usize::try_from(round).unwrap() + 1;
            let pid = instance.ready().pids.gateways[0];
            let clock = Request::new("POST", "/v1/test_clock")
                .json(&json!({"advance_seconds": DAY}))
                .bearer(&merchant.secret_key);
            clock.send(instance.gateway(1)).await.unwrap().expect(200);
            within(crate::HEAL, "the first renewals", async || {
                renewals(&merchant).await.values().any(|times| *times == due).then_some(())
            })
            .await;
            kill(pid);
            within(crate::HEAL, "all are renewed", async || {
                renewals(&merchant).await.values().all(|times| *times >= due).then_some(())
            })
            .await;
            within(crate::HEAL, "the gateway is back", async || {
                let ready = instance.try_ready()?;
                let is_back = ready.pids.gateways[0] != pid && is_running(ready.pids.gateways[0]);
                let listens = tokio::net::TcpStream::connect(instance.try_gateway(0)?).await.is_ok();
                (is_back && listens).then_some(())
            })
            .await;
            let renewed = renewals(&merchant).await;
            assert_eq!(renewed.len(), SUBSCRIBERS);
            assert!(renewed.values().all(|times| *times == due), "each once: {renewed:?}");
        }
        let granted = format!("{:.10}", 1.5 * f64::from(rounds() + 1));
        for subscription in merchant.pages("/v1/subscriptions", 100).await {
            assert_eq!(subscription["credits"]["total_remaining"], json!(granted), "{subscription}");
        }
        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        put_away(instance).await;
    });
}
