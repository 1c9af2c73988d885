//! Gateways that lead partitions: they die, hang, come and go, and their partitions are led on by others.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::leader::{Led, led, spread, taken_over};
use farthing_tests::log::Log;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::{kill, signal};
use farthing_tests::provider::{Endpoint, Gate, Step, head};
use farthing_tests::proxy::{Fault, Outcome, Proxy, Strike};
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, within};
use serde_json::json;
use tokio_postgres::types::ToSql;

use crate::abandoned::SWEEP;
use crate::load::{Ended, Load};
use crate::{aftermath, put_away, rounds, run};

/// The flags of a gateway beside the dev instance's.
pub(crate) const FLAGS: [&str; 4] = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "5"];

/// The last position in a partition that a gateway has written.
const LAST_BY: &str =
    "SELECT COALESCE(max(first_position), 0) FROM ledger.batches WHERE partition = $1 AND writer = $2";

/// A lease of [`Two::with_long_leases`].
const LONG_LEASE: Duration = Duration::from_mins(1);

/// A provider's answer.
const ANSWER: &str = r#"{"usage": {"tokens": 1}}"#;

async fn instance_of(gateways: u32) -> &'static Instance {
    Instance::of_test(gateways).await
}

/// The gateway of an instance and one beside it, which share the partitions.
pub(crate) struct Two {
    pub(crate) instance: &'static Instance,
    pub(crate) log: Log,
    /// The name of the instance's gateway.
    pub(crate) own_id: String,
    pub(crate) side: SideGateway,
    pub(crate) side_id: String,
    led: Led,
}

impl Two {
    pub(crate) async fn start() -> Self {
        let instance = instance_of(1).await;
        let side = SideGateway::start(instance, &FLAGS).await;
        Self::of(instance, side, 2).await
    }

    /// The same with leases of a minute.
    pub(crate) async fn with_long_leases() -> Self {
        let instance = Instance::of_test_with_long_leases(1).await;
        let flags = [&FLAGS[..], &["--lease-seconds=60"]].concat();
        let side = SideGateway::start(instance, &flags).await;
        Self::of(instance, side, 2).await
    }

    /// `gateways` in all share the partitions.
    async fn of(instance: &'static Instance, side: SideGateway, gateways: usize) -> Self {
        let log = instance.log().await;
        let (led, side_id) = (spread(&log.sql, gateways).await, side.id().await);
        let own_id = led.keys().find(|gateway| **gateway != side_id).unwrap().clone();
        Self { instance, log, own_id, side, side_id, led }
    }

    pub(crate) async fn put_away(self) {
        drop(self.side);
        put_away(self.instance).await;
    }
}

/// Load on a merchant whose partition the side gateway leads: one half of it through that gateway, until it is gone, the
/// other half through the instance's.
async fn load_over_both(merchant: Merchant, side: SocketAddr, is_gone: &Arc<AtomicBool>) -> Load {
    let (instance, is_gone) = (merchant.instance, Arc::clone(is_gone));
    let way = move |task: usize| {
        if task.is_multiple_of(2) || is_gone.load(Ordering::SeqCst) {
            instance.try_gateway(0)
        } else {
            Some(side)
        }
    };
    Load::of(merchant, Arc::new(way)).await
}

/// Asserts that every call of these tasks got its whole answer.
pub(crate) fn all_answered(load: &Ended, of_tasks: impl Fn(usize) -> bool) {
    for seen in &load.seen {
        let task = seen.marker.split('-').nth(1).and_then(|task| task.parse().ok()).unwrap();
        assert!(!of_tasks(task) || (seen.complete && seen.status == 200), "{seen:?}");
    }
}

/// The milliseconds from the end of a partition's lease, and from a moment, to the first append of another gateway.
const TAKEN_OVER_AFTER: &str = "\
SELECT (extract(epoch FROM min(recorded_at) - $3::timestamptz) * 1000)::bigint,
       (extract(epoch FROM min(recorded_at) - $4::timestamptz) * 1000)::bigint
FROM ledger.batches WHERE partition = $1 AND writer <> $2 AND recorded_at > $4";

#[test]
fn calls_through_a_follower_wait_for_a_new_leader_and_go_on() {
    run(async {
        for _ in 0..rounds() {
            let two = Two::start().await;
            let Two { instance, log, side, side_id, .. } = &two;
            let merchant = Merchant::led_by(instance, side_id).await;
            let partition = merchant.partition().await;
            let is_gone = Arc::new(AtomicBool::new(false));
            let load = load_over_both(merchant, side.address, &is_gone).await;
            load.calls(200).await;
            is_gone.store(true, Ordering::SeqCst);
            kill(side.pid());
            let of_lease = "SELECT expires_at, clock_timestamp() FROM ledger.leases WHERE partition = $1";
            let row = log.sql.query_one(of_lease, &[&partition]).await.unwrap();
            let (lease_end, killed): (DateTime<Utc>, DateTime<Utc>) = (row.get(0), row.get(1));
            taken_over(&log.sql, partition, side_id).await;
            load.calls(200).await;
            let load = load.stop().await;
            all_answered(&load, |task| task.is_multiple_of(2));
            let led = spread(&log.sql, 1).await;
            assert!(!led.contains_key(side_id), "{led:?}");
            let of = [&partition as &(dyn ToSql + Sync), side_id, &lease_end, &killed];
            let row = log.sql.query_one(TAKEN_OVER_AFTER, &of).await.unwrap();
            let (after_lease, after_kill): (i64, i64) = (row.get(0), row.get(1));
            // Not a macro for printing: the figure is to be seen when the test succeeds, too.
            let _ = writeln!(
                std::io::stderr(),
                "takeover: first append {after_lease} ms after the lease's end, {after_kill} ms after the kill"
            );
            aftermath::check(instance, &load).await;
            two.put_away().await;
        }
    });
}

#[test]
fn gateways_that_join_and_stop_share_the_partitions_and_disturb_no_call() {
    run(async {
        let instance = instance_of(2).await;
        let log = instance.log().await;
        spread(&log.sql, 2).await;
        let load = Load::start(instance).await;
        load.calls(100).await;
        let mut side = SideGateway::start(instance, &FLAGS).await;
        let shared = spread(&log.sql, 3).await;
        let side_id = side.id().await;
        assert!(shared.contains_key(&side_id), "{shared:?}");
        load.calls(100).await;
        side.terminate();
        assert!(side.ended().await.success(), "{}", side.logged());
        let shared = led(&log.sql).await;
        assert!(!shared.contains_key(&side_id), "its leases are given back: {shared:?}");
        spread(&log.sql, 2).await;
        load.calls(100).await;
        let load = load.stop().await;
        all_answered(&load, |_| true);
        aftermath::check(instance, &load).await;
        put_away(instance).await;
    });
}

/// A call that its provider has answered in full, at a leader whose append of the opening is held back.
struct HeldBack {
    two: Two,
    merchant: Merchant,
    endpoint: Endpoint,
    request: Request,
    call: Connection,
    /// The rest of the answer.
    rest: Gate,
}

/// The gateway that a call is made through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Through {
    Leader,
    Follower,
}

/// What of the answer has arrived when the leader dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrived {
    Whole,
    /// Its head, and one byte.
    Begun,
}

/// Makes the call, and kills the leader. The append reaches Postgres when the test says so.
async fn killed_before_the_opening_is_durable(through: Through, arrived: Arrived) -> (HeldBack, Strike) {
    // After the leader's death, a follower leads the partition itself, or another one does.
    let gateways = if through == Through::Leader { 1 } else { 2 };
    killed_leader_of(instance_of(gateways).await, gateways, &FLAGS, through, arrived).await
}

/// The same on `instance`, which has so many gateways; the one that dies has these flags.
async fn killed_leader_of(
    instance: &'static Instance,
    gateways: u32,
    flags: &[&str],
    through: Through,
    arrived: Arrived,
) -> (HeldBack, Strike) {
    let ready = instance.ready();
    let (proxy, url) = Proxy::before(&ready.database_url).await;
    let side = SideGateway::start_on(instance, &url, &ready.nats_url, flags).await;
    let two = Two::of(instance, side, gateways as usize + 1).await;
    let merchant = Merchant::led_by(instance, &two.side_id).await;
    merchant.credit_own("10").await;
    let customer = merchant.customer("1").await;
    let meter = merchant.call_meter("0.25").await;
    // An answer that comes at once would be settled in the same append.
    let (gate, rest) = (Gate::default(), Gate::default());
    let (held, held_rest) = (gate.clone(), rest.clone());
    let endpoint = instance.provider.endpoint(move |_| {
        let (length, body) = (ANSWER.len().to_string(), ANSWER.as_bytes().to_vec());
        let headers = [("Content-Type", "application/json"), ("Content-Length", &*length)];
        let (begin, end) = body.split_at(1);
        let begin = [Step::Wait(held.clone()), head(200, &headers), Step::Bytes(begin.to_vec())];
        let end = [Step::Wait(held_rest.clone()), Step::Bytes(end.to_vec())];
        begin.into_iter().chain(end).collect()
    });
    if arrived == Arrived::Whole {
        rest.open();
    }
    let request = forward("GET", &endpoint.url).bearer(&merchant.billing(&customer, &meter));
    let mut strike = proxy.strike(Fault::KeepBackInSilence, 0);
    let address = match through {
        Through::Leader => two.side.address,
        Through::Follower => merchant.gateway(),
    };
    let mut call = Connection::open(address).await.unwrap();
    call.send(&request).await.unwrap();
    strike.struck().await;
    gate.open();
    let is_answered = || endpoint.calls().iter().any(|call| call.is_finished());
    if arrived == Arrived::Whole {
        eventually("the provider has answered", async || is_answered().then_some(())).await;
    }
    kill(two.side.pid());
    (HeldBack { two, merchant, endpoint, request, call, rest }, strike)
}

impl HeldBack {
    /// Asserts that the caller learned nothing and that nothing was charged, and that calls go on.
    async fn nothing_came_of_it(mut self) {
        let head = self.call.head("GET").await;
        assert!(head.is_err(), "something of the answer reached the caller: {head:?}");
        let merchant = &self.merchant;
        merchant.nothing_is_held().await;
        assert!(merchant.events().await.iter().all(|event| event.kind != "request.metered"));
        assert_eq!(merchant.own_balance().await, "10.0000000000");
        let again = self.request.clone().send(merchant.gateway()).await.unwrap();
        again.expect(200);
        merchant.charged(&again).await;
        let report = merchant.instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        self.two.put_away().await;
    }

    async fn is_answered_and_charged_once(&mut self) {
        let answer = self.call.response("GET").await.unwrap();
        answer.expect(200);
        self.merchant.charged(&answer).await;
        self.is_charged_once().await;
    }

    async fn is_charged_once(&self) {
        let merchant = &self.merchant;
        for kind in ["request.opened", "request.metered"] {
            assert_eq!(merchant.of_kind(kind).await.len(), 1, "{kind}");
        }
        assert_eq!(self.endpoint.calls().len(), 1, "its provider was called once");
        merchant.nothing_is_held().await;
        let report = merchant.instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
    }
}

#[test]
fn a_call_whose_opening_arrives_after_the_takeover_never_was() {
    run(async {
        let (scene, strike) = killed_before_the_opening_is_durable(Through::Leader, Arrived::Whole).await;
        let merchant = &scene.merchant;
        taken_over(&scene.two.log.sql, merchant.partition().await, &scene.two.side_id).await;
        // The new leader has appended, so it has raised the epoch.
        merchant.post("/v1/spend_keys", &json!({"name": "of the new leader"})).await.expect(201);
        assert_eq!(strike.outcome().await, Outcome::Moved(false));
        assert!(merchant.events().await.iter().all(|event| event.kind != "request.opened"));
        scene.nothing_came_of_it().await;
    });
}

#[test]
fn a_call_whose_opening_arrives_before_the_takeover_is_swept() {
    run(async {
        let (scene, strike) = killed_before_the_opening_is_durable(Through::Leader, Arrived::Whole).await;
        assert_eq!(strike.outcome().await, Outcome::Moved(true));
        let ended = within(SWEEP, "the call is swept", async || {
            scene.merchant.events().await.into_iter().find(|event| event.kind == "request.failed")
        })
        .await;
        assert_eq!(ended.body["reason"], "abandoned");
        scene.nothing_came_of_it().await;
    });
}

#[test]
fn a_call_through_a_follower_whose_opening_is_lost_with_its_leader_is_opened_again() {
    run(async {
        let (mut scene, strike) =
            killed_before_the_opening_is_durable(Through::Follower, Arrived::Whole).await;
        scene.is_answered_and_charged_once().await;
        // The new leader has appended, so it has raised the epoch.
        assert_eq!(strike.outcome().await, Outcome::Moved(false));
        scene.is_charged_once().await;
        scene.two.put_away().await;
    });
}

#[test]
fn a_stream_through_a_follower_whose_opening_is_lost_begins_once_it_is_opened_again() {
    run(async {
        let through = Through::Follower;
        let (mut scene, strike) = killed_before_the_opening_is_durable(through, Arrived::Begun).await;
        let head = scene.call.head("GET").await.unwrap();
        assert!(head.first_line.starts_with("HTTP/1.1 200 "), "{head:?}");
        assert_eq!(
            scene.merchant.of_kind("request.opened").await.len(),
            1,
            "it is opened before it is answered"
        );
        assert_eq!(strike.outcome().await, Outcome::Moved(false));
        scene.rest.open();
        let (body, end) = scene.call.read.rest().await;
        assert!(end.is_ok());
        assert_eq!(body, ANSWER.as_bytes());
        scene.is_charged_once().await;
        scene.two.put_away().await;
    });
}

#[test]
fn a_call_through_a_follower_whose_opening_outlives_its_leader_is_opened_once() {
    run(async {
        let (mut scene, strike) =
            killed_before_the_opening_is_durable(Through::Follower, Arrived::Whole).await;
        assert_eq!(strike.outcome().await, Outcome::Moved(true));
        scene.is_answered_and_charged_once().await;
        scene.two.put_away().await;
    });
}

/// No other gateway may lead the partition for a minute.
#[test]
fn a_response_whose_opening_is_long_in_doubt_is_charged_if_the_call_turns_out_to_be_open() {
    run(async {
        let instance = Instance::of_test_with_long_leases(1).await;
        let flags = [&FLAGS[..], &["--lease-seconds=60"]].concat();
        let (mut scene, strike) =
            killed_leader_of(instance, 1, &flags, Through::Follower, Arrived::Whole).await;
        assert_eq!(strike.outcome().await, Outcome::Moved(true));
        let answer = scene.call.response("GET").await.unwrap();
        answer.expect(503);
        let metered = async || scene.merchant.of_kind("request.metered").await.into_iter().next();
        let metered = within(LONG_LEASE * 2, "the call is charged", metered).await;
        assert_eq!(metered.body["usage"]["tokens"]["input"], 1, "{}", metered.body);
        assert!(scene.merchant.of_kind("request.failed").await.is_empty());
        scene.is_charged_once().await;
        scene.two.put_away().await;
    });
}

#[test]
fn a_leader_that_hung_beyond_its_lease_appends_nothing_late() {
    run(async {
        let two = Two::start().await;
        let Two { instance, log, own_id: hung_id, side, side_id, led } = &two;
        let merchant = Merchant::led_by(instance, hung_id).await;
        let partition = merchant.partition().await;
        // It has joined last, so it has the last partitions, and hands these over again when the other one wakes up.
        assert!(led[side_id].iter().all(|led| *led > partition), "{led:?}");
        let load = load_over_both(merchant, side.address, &Arc::default()).await;
        load.calls(200).await;
        let pid = instance.ready().pids.gateways[0];
        signal(pid, "STOP");
        assert_eq!(taken_over(&log.sql, partition, hung_id).await, *side_id);
        load.calls(100).await;
        let last_by_hung = async || {
            let row = log.sql.query_one(LAST_BY, &[&partition, hung_id]).await.unwrap();
            row.get::<_, i64>(0)
        };
        let before = last_by_hung().await;
        assert!(before > 0, "it led the partition");
        signal(pid, "CONT");
        let led = spread(&log.sql, 2).await;
        assert!(led[side_id].contains(&partition), "{led:?}");
        assert!(scrape(instance.operator(0)).await.count("farthing_leases_lost_total", &[]) > 0);
        load.calls(200).await;
        let load = load.stop().await;
        assert_eq!(last_by_hung().await, before, "it has appended after its lease");
        // Commands that were on their way to the hung gateway were sent to the next leader.
        all_answered(&load, |task| !task.is_multiple_of(2));
        aftermath::check(instance, &load).await;
        // What it has lost is not lost to it for good.
        side.terminate();
        let led = spread(&log.sql, 1).await;
        assert!(led[hung_id].contains(&partition), "{led:?}");
        two.put_away().await;
    });
}

/// A gateway whose sessions have the setting `test.weak` cannot lead the last two partitions.
const WEAKEN: &str = "\
CREATE FUNCTION public.refuse_weak() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('test.weak', true) = 'on' AND NEW.partition >= 6 AND NEW.epoch <> OLD.epoch THEN
        RAISE EXCEPTION 'a weak gateway';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_weak BEFORE UPDATE ON ledger.heads FOR EACH ROW EXECUTE FUNCTION public.refuse_weak()";

#[test]
fn a_gateway_that_cannot_lead_a_partition_leaves_it_to_another_one() {
    run(async {
        let instance = instance_of(1).await;
        let (log, ready) = (instance.log().await, instance.ready());
        log.sql.batch_execute(WEAKEN).await.unwrap();
        let strong_id = spread(&log.sql, 1).await.into_keys().next().unwrap();
        let url = format!("{}?options=-c%20test.weak%3Don", ready.database_url);
        let weak = SideGateway::start_on(instance, &url, &ready.nats_url, &FLAGS).await;
        let weak_id = weak.id().await;
        // It gets the last four partitions, and gives two of them up for two others.
        eventually("the weak gateway gives up", async || {
            (weak.logged().matches("leases.given_up").count() == 2).then_some(())
        })
        .await;
        eventually("each gateway leads what it can", async || {
            let led = led(&log.sql).await;
            let is_exchanged = led.get(&weak_id).is_some_and(|led| led == &[2, 3, 4, 5])
                && led.get(&strong_id).is_some_and(|led| led == &[0, 1, 6, 7]);
            is_exchanged.then_some(())
        })
        .await;
        let merchant = loop {
            let merchant = Merchant::led_by(instance, &strong_id).await;
            if merchant.partition().await >= 6 {
                break merchant;
            }
        };
        let load = load_over_both(merchant, weak.address, &Arc::default()).await;
        load.calls(400).await;
        let load = load.stop().await;
        all_answered(&load, |_| true);
        aftermath::check(instance, &load).await;
        drop(weak);
        put_away(instance).await;
    });
}
