//! Gateways and projectors that die during webhook deliveries: each event is delivered at least once, and in order per
//! customer.

use std::collections::BTreeMap;
use std::time::Duration;

use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::process::{is_running, kill};
use farthing_tests::provider::{Endpoint, Step, json};
use farthing_tests::ready::Pids;
use farthing_tests::wait::within;
use serde_json::{Value, json};

use crate::{HEAL, put_away, run};

const CUSTOMERS: usize = 6;
const CREDITS: usize = 12;

/// The timeout for a dead gateway's claims to lapse and for the deliveries after them.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(2);

/// The balances that the receiver got, by customer, in the order of their first delivery.
fn delivered(receiver: &Endpoint) -> BTreeMap<String, Vec<String>> {
    let mut delivered: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for call in receiver.calls() {
        let news: Value = serde_json::from_slice(&call.body).unwrap();
        let customer = news["data"]["customer"]["customer_id"].as_str().unwrap().to_owned();
        let balance = news["data"]["wallet"]["balance"].as_str().unwrap().to_owned();
        let balances = delivered.entry(customer).or_default();
        if !balances.contains(&balance) {
            balances.push(balance);
        }
    }
    delivered
}

async fn everything_is_delivered_despite_killing(victims: fn(&Pids) -> Vec<u32>) {
    let flags = &["--webhook-timeout-seconds=2", "--webhook-retry-ms=100,200"];
    let instance = Instance::of_test_with(2, flags).await;
    let merchant = Merchant::of(instance).await;
    let receiver = instance.provider.endpoint(|_| {
        // Slow enough that a fault hits deliveries in flight.
        let mut steps = vec![Step::Pause(Duration::from_millis(40))];
        steps.extend(json(200, &json!({})));
        steps
    });
    let mut customers: Vec<Customer> = Vec::new();
    for number in 0..CUSTOMERS {
        customers.push(merchant.customer_called(&format!("customer {number}"), "0").await);
    }
    let body = json!({"url": receiver.url, "events": ["customer.wallet.balance.updated"]});
    merchant.post("/v1/webhooks", &body).await.expect(201);
    let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut killed = Vec::new();
    for total in 1..=CREDITS {
        for customer in &customers {
            merchant.credit(customer, "1").await;
            wanted.entry(customer.id.clone()).or_default().push(format!("{total}.0000000000"));
        }
        if total % 4 == 2 {
            within(DELIVERY_TIMEOUT, "deliveries continue", async || {
                (receiver.calls().len() > killed.len() * CUSTOMERS).then_some(())
            })
            .await;
            for pid in victims(&instance.ready().pids) {
                kill(pid);
                killed.push(pid);
            }
            within(HEAL, "the killed processes are back", async || {
                let now = victims(&instance.ready().pids);
                now.iter().all(|pid| !killed.contains(pid) && is_running(*pid)).then_some(())
            })
            .await;
        }
    }
    within(DELIVERY_TIMEOUT, "everything is delivered in order", async || {
        (delivered(&receiver) == wanted).then_some(())
    })
    .await;
    put_away(instance).await;
}

#[test]
fn a_gateway_that_dies_during_deliveries_loses_none_and_keeps_the_order() {
    run(everything_is_delivered_despite_killing(|pids| vec![pids.gateways[0]]));
}

#[test]
fn a_projector_that_dies_during_deliveries_loses_none_and_keeps_the_order() {
    run(everything_is_delivered_despite_killing(|pids| vec![pids.projectors[0]]));
}
