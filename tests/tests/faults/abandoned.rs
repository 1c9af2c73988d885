//! Calls in flight at a gateway that dies or hangs: ended by the sweeper, not charged, and never complete for the caller.

use std::time::Duration;

use farthing_tests::client::Connection;
use farthing_tests::instance::Instance;
use farthing_tests::leader::spread;
use farthing_tests::log::Logged;
use farthing_tests::merchant::{Customer, Merchant, Meter, forward};
use farthing_tests::process::{kill, signal};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, json, last_chunk};
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, eventually_ok, within};
use serde_json::{Value, json};

use crate::{put_away, run};

const CALLS: usize = 12;

/// The timeout for a dead gateway's calls to be ended.
pub(crate) const SWEEP: Duration = Duration::from_secs(40);

const HEARTBEATS: &str = "SELECT count(*) FROM ledger.gateway_lease WHERE gateway_id = $1";

const DIED_AT_ITS_START: &str = "\
INSERT INTO ledger.gateways (gateway, shape, expires_at)
SELECT 'gw_dead', max(shape), clock_timestamp() - interval '1 hour' FROM ledger.heads";

struct Scene {
    instance: &'static Instance,
    merchant: Merchant,
    customer: Customer,
    gate: Gate,
    calls: Vec<Connection>,
}

/// Calls in flight at the first gateway: half of them before their response, half in the middle of it. All would report usage
/// and be charged at their end.
async fn scene() -> Scene {
    let instance = Instance::of_test(2).await;
    let merchant = Merchant::of(instance).await;
    merchant.credit_own("10").await;
    let customer = merchant.customer("10").await;
    let meter = merchant.call_meter("0.5").await;
    let gate = Gate::default();
    let (late, streaming) = (gate.clone(), gate.clone());
    let late = instance.provider.endpoint(move |_| {
        let mut steps = vec![Step::Wait(late.clone())];
        steps.extend(json(200, &json!({"usage": {"tokens": 1}})));
        steps
    });
    let streaming = instance.provider.endpoint(move |_| {
        let first = chunk("data: {\"usage\":{\"tokens\":1}}\n\n");
        vec![event_stream(), first, Step::Wait(streaming.clone()), last_chunk()]
    });
    let mut scene = Scene { instance, merchant, customer, gate, calls: Vec::new() };
    for number in 0..CALLS {
        let endpoint = if number % 2 == 0 { &late } else { &streaming };
        scene.begin(endpoint, &meter).await;
    }
    eventually("all calls are in flight", async || {
        (late.calls().len() + streaming.calls().len() == CALLS).then_some(())
    })
    .await;
    // A call is sent before its opening is in the log, and one whose opening dies with its gateway never was.
    eventually("all calls are open", async || {
        (scene.merchant.of_kind("request.opened").await.len() == CALLS).then_some(())
    })
    .await;
    // The gateway knows so of those whose response has begun.
    for call in scene.calls.iter_mut().skip(1).step_by(2) {
        let head = call.head("GET").await.unwrap();
        assert!(head.first_line.starts_with("HTTP/1.1 200 "), "{head:?}");
    }
    scene
}

impl Scene {
    async fn begin(&mut self, endpoint: &Endpoint, meter: &Meter) {
        let request = forward("GET", &endpoint.url).bearer(&self.merchant.billing(&self.customer, meter));
        let mut connection = Connection::open(self.instance.gateway(0)).await.unwrap();
        connection.send(&request).await.unwrap();
        self.calls.push(connection);
    }

    /// The calls whose response ended whole and well.
    async fn completed(&mut self) -> usize {
        let mut completed = 0;
        for (number, call) in self.calls.iter_mut().enumerate() {
            let is_whole = if number % 2 == 0 {
                call.response("GET").await.is_ok_and(|answer| answer.complete && answer.status == 200)
            } else {
                call.read.rest().await.1.is_ok()
            };
            completed += usize::from(is_whole);
        }
        completed
    }

    /// Waits until every call is ended as abandoned; returns the events.
    async fn swept(&self) -> Vec<Logged> {
        let ended = within(SWEEP, "the calls are swept", async || {
            let events = self.merchant.events().await;
            let ended: Vec<_> = events.into_iter().filter(|event| event.kind == "request.failed").collect();
            (ended.len() == CALLS).then_some(ended)
        })
        .await;
        assert!(ended.iter().all(|event| event.body["reason"] == "abandoned"));
        self.merchant.nothing_is_held().await;
        ended
    }

    /// Asserts that nothing was charged, by the log and by the API.
    async fn nothing_was_charged(&self, swept: &[Logged]) {
        assert_eq!(self.merchant.balance(&self.customer).await, "10.0000000000");
        assert!(self.merchant.events().await.iter().all(|event| event.kind != "request.metered"));
        for event in swept {
            let shown = self.merchant.shown(event.text("request_id"), "error").await;
            assert_eq!(shown["total_request_cost"], "0.0000000000");
        }
        let report = self.instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        let (report, code) = self.reconciliation().await;
        assert_eq!(report["classes"]["abandoned"]["count"], CALLS, "{report}");
        assert_eq!((report["calls"].as_array().unwrap().len(), code), (CALLS, Some(1)), "{report}");
    }

    /// The calls that somebody must look at, and the exit code.
    async fn reconciliation(&self) -> (Value, Option<i32>) {
        let output = self.instance.command(&["audit", "reconcile"]).await;
        (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
    }
}

#[test]
fn calls_in_flight_at_a_gateway_that_dies_are_swept_and_their_holds_released() {
    run(async {
        let mut scene = scene().await;
        kill(scene.instance.ready().pids.gateways[0]);
        assert_eq!(scene.completed().await, 0, "a dead gateway completed a response");
        let swept = scene.swept().await;
        scene.gate.open();
        scene.nothing_was_charged(&swept).await;
        put_away(scene.instance).await;
    });
}

/// It has announced itself to the others, and nothing more.
#[test]
fn a_gateway_that_died_before_its_first_heartbeat_is_forgotten() {
    run(async {
        let instance = Instance::of_test(1).await;
        let sql = instance.log().await.sql;
        sql.batch_execute(DIED_AT_ITS_START).await.unwrap();
        within(SWEEP, "the dead gateway is forgotten", async || {
            let left = sql.query("SELECT FROM ledger.gateways WHERE gateway = 'gw_dead'", &[]).await.unwrap();
            left.is_empty().then_some(())
        })
        .await;
        let live = "SELECT FROM ledger.gateways WHERE expires_at > clock_timestamp()";
        eventually("the live gateway stays", async || {
            (sql.query(live, &[]).await.unwrap().len() == 1).then_some(())
        })
        .await;
        put_away(instance).await;
    });
}

#[test]
fn a_gateway_that_hung_and_was_swept_completes_no_uncharged_response() {
    run(async {
        let mut scene = scene().await;
        let pid = scene.instance.ready().pids.gateways[0];
        signal(pid, "STOP");
        scene.gate.open();
        let swept = {
            // The first gateway cannot respond while it hangs, so only the log is checked.
            let ended = scene.swept().await;
            signal(pid, "CONT");
            ended
        };
        assert_eq!(scene.completed().await, 0, "a response was completed whose settlement was refused");
        // Each of them would have been charged: the gateway counts those that it knows to have been opened, and logs the facts
        // for a charge by hand.
        let log = scene.instance.data.join("logs/gateway-0.log");
        eventually_ok("the gateway counts them", async || {
            let counted =
                scrape(scene.instance.operator(0)).await.count("farthing_calls_unsettled_total", &[]);
            let logged =
                std::fs::read_to_string(&log).unwrap().matches("forward.call_left_unsettled").count();
            let known = CALLS / 2..=CALLS;
            if counted == logged as u64 && known.contains(&logged) {
                Ok(())
            } else {
                Err(format!("{counted} {logged}"))
            }
        })
        .await;
        scene.nothing_was_charged(&swept).await;
        put_away(scene.instance).await;
    });
}

#[test]
fn the_calls_of_a_dead_gateway_are_swept_in_the_partitions_of_every_leader() {
    run(async {
        let instance = Instance::of_test(2).await;
        let side = SideGateway::start(instance, &["--allow-address=127.0.0.0/8"]).await;
        let log = instance.log().await;
        let side_id = side.id().await;
        let gate = Gate::default();
        let wait = gate.clone();
        let endpoint = instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(wait.clone())];
            steps.extend(json(200, &json!({"usage": {"tokens": 1}})));
            steps
        });
        let (mut merchants, mut calls) = (Vec::new(), Vec::new());
        for leader in spread(&log.sql, 3).await.keys() {
            let merchant = Merchant::led_by(instance, leader).await;
            merchant.credit_own("10").await;
            let (customer, meter) = (merchant.customer("10").await, merchant.call_meter("0.5").await);
            let mut call = Connection::open(side.address).await.unwrap();
            call.send(&forward("GET", &endpoint.url).bearer(&merchant.billing(&customer, &meter)))
                .await
                .unwrap();
            calls.push(call);
            merchants.push(merchant);
        }
        eventually("all calls are in flight", async || {
            (endpoint.calls().len() == merchants.len()).then_some(())
        })
        .await;
        for merchant in &merchants {
            eventually("its call is open", async || {
                (merchant.of_kind("request.opened").await.len() == 1).then_some(())
            })
            .await;
        }
        kill(side.pid());
        for merchant in &merchants {
            let ended = within(SWEEP, "the call is swept", async || {
                merchant.of_kind("request.failed").await.into_iter().next()
            })
            .await;
            assert_eq!(ended.body["reason"], "abandoned");
            merchant.nothing_is_held().await;
        }
        eventually("the dead gateway is forgotten", async || {
            let row = log.sql.query_one(HEARTBEATS, &[&side_id]).await.unwrap();
            (row.get::<_, i64>(0) == 0).then_some(())
        })
        .await;
        gate.open();
        drop(side);
        put_away(instance).await;
    });
}
