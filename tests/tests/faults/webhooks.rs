//! Gateways and projectors that die during webhook deliveries: each event is delivered at least once, and in order per
//! customer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farthing_tests::instance::Instance;
use farthing_tests::leader::spread;
use farthing_tests::merchant::{Customer, Merchant};
use farthing_tests::process::{is_running, kill, signal};
use farthing_tests::provider::{Endpoint, Step, json};
use farthing_tests::ready::Pids;
use farthing_tests::side_gateway::SideGateway;
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

/// The table that a gateway reads to build the payload of an event about a customer.
const CUSTOMERS_TABLE: &str =
    "SELECT quote_ident(schemaname) || '.customers' FROM pg_tables WHERE tablename = 'customers'";

/// The queues of the webhook $1 whose next delivery waits for a lock that a test has.
const WAITING: &str = "\
SELECT count(*) FROM webhooks.lane WHERE webhook_id = $1 AND claim IS NOT NULL AND EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'farthing_gateway' AND wait_event_type = 'Lock')";

#[test]
fn a_gateway_whose_claim_has_lapsed_while_it_hung_delivers_nothing_late() {
    run(async {
        let flags = &["--webhook-timeout-seconds=1", "--webhook-retry-ms=3000"];
        let instance = Instance::of_test_with(1, flags).await;
        let log = instance.log().await;
        let own_id = spread(&log.sql, 1).await.into_keys().next().unwrap();
        let _side =
            SideGateway::start(instance, &[&["--allow-address=127.0.0.0/8"], flags.as_slice()].concat())
                .await;
        spread(&log.sql, 2).await;
        let merchant = Merchant::led_by(instance, &own_id).await;
        let is_answered = AtomicBool::new(false);
        let receiver = instance.provider.endpoint(move |_| {
            json(if is_answered.swap(true, Ordering::Relaxed) { 200 } else { 500 }, &json!({}))
        });
        let customer = merchant.customer("0").await;
        let body = json!({"url": receiver.url, "events": ["customer.wallet.balance.updated"]});
        let made = merchant.post("/v1/webhooks", &body).await.expect(201);
        let hook = made["webhook_id"].as_str().unwrap();
        merchant.credit(&customer, "1").await;
        within(HEAL, "the first attempt fails", async || (receiver.calls().len() == 1).then_some(())).await;

        // The leader hangs with the second attempt before it.
        let table: String = log.sql.query_one(CUSTOMERS_TABLE, &[]).await.unwrap().get(0);
        log.sql.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
        within(HEAL, "the second attempt begins", async || {
            let waiting = merchant.log.sql.query_one(WAITING, &[&hook]).await.unwrap();
            (waiting.get::<_, i64>(0) == 1).then_some(())
        })
        .await;
        let hung = instance.ready().pids.gateways[0];
        signal(hung, "STOP");
        log.sql.batch_execute("ROLLBACK").await.unwrap();
        within(DELIVERY_TIMEOUT, "the next leader delivers", async || {
            (receiver.calls().len() == 2).then_some(())
        })
        .await;
        signal(hung, "CONT");
        merchant.credit(&customer, "1").await;
        within(DELIVERY_TIMEOUT, "the next event arrives", async || {
            (delivered(&receiver)[&customer.id].len() == 2).then_some(())
        })
        .await;
        let ids: Vec<_> =
            receiver.calls().iter().map(|call| call.head.header("webhook-id").unwrap().to_owned()).collect();
        assert!(ids.len() == 3 && ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");
        put_away(instance).await;
    });
}
