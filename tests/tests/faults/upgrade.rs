//! A rolling upgrade: processes of the next release start beside those of the old one, take over under load, and the old
//! ones stop. No call is answered with an error, each is charged once, and the old program can append nothing any more.
//!
//! The next release is the same program with `FARTHING_TEST_NEXT_RELEASE` (see `farthing_core::release`).

use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::client::Request;
use farthing_tests::instance::{Instance, program};
use farthing_tests::leader::led;
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::{is_running, signal};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::{eventually, within};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::load::{Ended, Load, Seen, TASKS};
use crate::{HEAL, aftermath, put_away, run};

pub(crate) const FLAGS: [&str; 2] = ["--allow-address", "127.0.0.0/8"];

/// The states of the next release for the last partition cannot be built until the trigger is dropped.
const KEEP_UNBUILT: &str = "\
CREATE FUNCTION public.keep_unbuilt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not yet';
END $$;
CREATE TRIGGER keep_unbuilt BEFORE INSERT ON ledger.checkpoints FOR EACH ROW
WHEN (NEW.partition = 7 AND NOT NEW.built) EXECUTE FUNCTION public.keep_unbuilt()";
pub(crate) const LET_BUILD: &str = "DROP TRIGGER keep_unbuilt ON ledger.checkpoints";

/// The partitions whose states the next release has built.
const BUILT: &str = "\
SELECT count(*) FROM ledger.checkpoints
WHERE built AND generation > (SELECT min(generation) FROM ledger.heads)";

/// The shapes and generations of all partitions.
pub(crate) async fn shapes(log: &Log) -> Vec<(i64, i16)> {
    let rows = log.sql.query("SELECT DISTINCT shape, generation FROM ledger.heads", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Load through the instance's gateway until it is gone, and then through the one that takes its place.
async fn load_through_the_old(instance: &'static Instance, is_gone: &Arc<AtomicBool>) -> Load {
    let is_gone = Arc::clone(is_gone);
    let old = instance.gateway(0);
    let way = move |_| if is_gone.load(Ordering::SeqCst) { instance.try_gateway(0) } else { Some(old) };
    Load::through(instance, Arc::new(way)).await
}

/// Reads a customer again and again, through the gateway that the instance has at the time, until `stop`. Every answer
/// must be whole. Returns their number.
fn read_on(instance: &'static Instance, load: &Load, stop: &Arc<AtomicBool>) -> JoinHandle<u32> {
    let (key, customer) = (load.parties().merchant.secret_key.clone(), load.parties().customers[0].clone());
    let stop = Arc::clone(stop);
    tokio::spawn(async move {
        let mut answers = 0;
        while !stop.load(Ordering::SeqCst) {
            let request = Request::new("GET", format!("/v1/customers/{}", customer.id)).bearer(&key);
            let to = instance.gateway(0);
            let answer = match request.send(to).await {
                // A connection that the old gateway had not accepted yet when it closed its listener.
                Err(_) if instance.gateway(0) != to => continue,
                answer => answer.unwrap(),
            };
            let shown = answer.expect(200);
            assert_eq!(shown["reference_id"], customer.reference_id.as_str(), "{shown}");
            answers += 1;
        }
        answers
    })
}

/// Asserts that every call got its whole answer, but for those that met the end of a kept connection: at most so many, and
/// no byte of an answer came.
fn none_failed(load: &Ended, closed_connections: usize) {
    let is_whole = |seen: &&Seen| seen.complete && seen.status == 200;
    let others: Vec<_> = load.seen.iter().filter(|seen| !is_whole(seen)).collect();
    assert!(others.len() <= closed_connections, "{others:?}");
    assert!(others.iter().all(|seen| seen.on_kept_connection && seen.status == 0), "{others:?}");
}

/// The instance after the upgrade, and what runs beside it.
struct Upgraded {
    instance: &'static Instance,
    log: Log,
    gateway: SideGateway,
    projector: SideProjector,
}

/// Upgrades an instance under load to the release with this change.
async fn upgraded(change: &'static str) -> Upgraded {
    let instance = Instance::of_test(1).await;
    let log = instance.log().await;
    let [(shape, generation)] = shapes(&log).await[..] else { panic!("one shape") };
    let (is_gone, stop_reading) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let through_old = load_through_the_old(instance, &is_gone).await;
    through_old.calls(200).await;
    let reader = read_on(instance, &through_old, &stop_reading);

    instance.upgrade_to(change);
    let report = instance.operate(&["migrate", "--mode", "test"]).await;
    let new_models = if change == "fold" { json!(["customers", "requests"]) } else { json!([]) };
    assert_eq!((&report["migrations"], &report["read_models"]), (&json!([]), &new_models), "{report}");
    through_old.calls(100).await;
    let projector = SideProjector::start(instance).await;
    // It listens once it has taken over.
    let gateway = SideGateway::start(instance, &FLAGS).await;
    // A generation has the number of the shape that it begins with.
    let next = (shape + 1, if change == "fold" { i16::try_from(shape + 1).unwrap() } else { generation });
    within(HEAL, "the next release leads all partitions", async || {
        let led = led(&log.sql).await;
        (led.len() == 1 && shapes(&log).await == [next]).then_some(())
    })
    .await;
    let id = gateway.id().await;
    assert_eq!(led(&log.sql).await[&id].len(), log.heads().await.len());

    // Both serve: the old gateway sends its commands to the new one.
    let through_new = {
        let address = gateway.address;
        Load::through(instance, Arc::new(move |_| Some(address))).await
    };
    through_old.calls(100).await;
    through_new.calls(200).await;
    if change == "fold" {
        let error = prune_refused(instance).await;
        for found in ["gateway gw_", "a gateway that reads customers,", "a projector that writes requests,"] {
            assert!(error.contains(found), "{error}");
        }
    }
    instance.replace_gateways_by(gateway.address);
    let old = instance.ready().pids.gateways[0];
    is_gone.store(true, Ordering::SeqCst);
    signal(old, "TERM");
    within(HEAL, "the old gateway ends", async || (!is_running(old)).then_some(())).await;
    through_old.calls(100).await;
    through_new.calls(100).await;

    stop_reading.store(true, Ordering::SeqCst);
    assert!(reader.await.unwrap() > 10);
    let (through_old, through_new) = (through_old.stop().await, through_new.stop().await);
    // The old gateway has closed a connection of each task.
    none_failed(&through_old, TASKS);
    none_failed(&through_new, 0);
    the_old_program_is_refused(instance).await;
    aftermath::check(instance, &through_old).await;
    aftermath::check(instance, &through_new).await;
    Upgraded { instance, log, gateway, projector }
}

/// The error of `farthing prune`, which finds processes of the old release.
async fn prune_refused(instance: &Instance) -> String {
    let refused = instance.command(&["prune"]).await;
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("processes of an earlier release run"), "{error}");
    error
}

/// The launcher starts the old gateway again and again, and each is refused, as is another one. An operator's command of the
/// old release is decided by the new gateway.
async fn the_old_program_is_refused(instance: &'static Instance) {
    let refused = "the log belongs to a newer version of this program";
    within(HEAL, "the old gateway is refused", async || {
        let output = std::fs::read_to_string(instance.data.join("logs/gateway-0.log")).ok()?;
        output.contains(refused).then_some(())
    })
    .await;
    let mut command = Command::new(program());
    command.args(["gateway", "--listen=127.0.0.1:0", "--database-url", &instance.ready().database_url]);
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains(refused), "{output:?}");
    let created = old_operator(instance).await;
    assert!(created.status.success(), "{created:?}");
}

/// Creates a merchant with the old program.
async fn old_operator(instance: &Instance) -> Output {
    let mut command = Command::new(program());
    command.args(["merchant", "create", "--name", "late", "--database-url", &instance.ready().database_url]);
    command.stdin(Stdio::null()).output().await.unwrap()
}

impl Upgraded {
    /// Without a gateway, an operator's command of the old release would have to lead, and cannot.
    async fn put_away(self) {
        let Self { instance, log, gateway, projector } = self;
        drop(gateway);
        within(HEAL, "no gateway leads", async || led(&log.sql).await.is_empty().then_some(())).await;
        let (before, refused) = (log.head().await, old_operator(instance).await);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && error.contains("nothing was changed"), "{error}");
        assert_eq!(log.head().await, before);
        drop(projector);
        put_away(instance).await;
    }
}

#[test]
fn a_release_that_folds_differently_takes_over_under_load() {
    run(async {
        let upgraded = upgraded("fold").await;
        let Upgraded { instance, log, .. } = &upgraded;
        let mut debits: BTreeMap<String, u64> = BTreeMap::new();
        for event in log.after(0).await.iter().filter(|event| event.kind == "wallet.debited") {
            *debits.entry(event.text("wallet_id").to_owned()).or_default() += 1;
        }
        assert!(!debits.is_empty());
        let counted = log.states("wallet").await.into_iter();
        let counted = counted.filter_map(|(id, state)| Some((id, state["debits"].as_u64()?)));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), debits, "the new fold is that of the whole log");

        // What the old release used is dropped on demand alone.
        let earlier = "SELECT count(*) FROM ledger.state AS s JOIN ledger.heads AS h USING (partition)
            WHERE s.generation < h.generation";
        let earlier = async || log.sql.query_one(earlier, &[]).await.unwrap().get::<_, i64>(0);
        let before = earlier().await;
        assert!(before > 0);
        // The old gateway is gone, the old projector is not.
        let error = prune_refused(instance).await;
        assert!(!error.contains("gateway") && error.contains("a projector that writes customers"), "{error}");
        assert_eq!(earlier().await, before);
        let report = instance.operate(&["prune", "--force"]).await;
        assert_eq!(report["states"], before, "{report}");
        assert_eq!(report["read_models"], json!(["customers", "requests"]), "{report}");
        assert_eq!(earlier().await, 0);
        let report = instance.operate(&["prune"]).await;
        assert_eq!(report, json!({"states": 0, "read_models": []}));
        let load = Load::start(instance).await;
        load.calls(250).await;
        let load = load.stop().await;
        none_failed(&load, 0);
        aftermath::check(instance, &load).await;
        upgraded.put_away().await;
    });
}

#[test]
fn a_release_that_stores_a_state_in_another_form_takes_over_under_load() {
    run(async {
        let upgraded = upgraded("form").await;
        let forms = "SELECT count(*) FILTER (WHERE s.shape = h.shape AND body LIKE '{\"wallet\":%'),
                count(*) FILTER (WHERE s.shape < h.shape AND body NOT LIKE '{\"wallet\":%'), count(*)
            FROM ledger.state AS s JOIN ledger.heads AS h USING (partition) WHERE kind = 'wallet'";
        let row = upgraded.log.sql.query_one(forms, &[]).await.unwrap();
        let (new, old, all): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        assert!(new > 0 && old > 0 && new + old == all, "{new} + {old} of {all}");
        upgraded.put_away().await;
    });
}

/// A gateway of the next release, with another fold, at this address.
fn next_gateway(instance: &Instance, listen: &str) -> Command {
    let mut gateway = Command::new(program());
    gateway.args(["gateway", "--listen", listen, "--database-url", &instance.ready().database_url]);
    gateway.args(FLAGS).env("FARTHING_TEST_NEXT_RELEASE", "fold").stdin(Stdio::null()).kill_on_drop(true);
    gateway
}

/// A gateway of the next release that has logged that it waits.
pub(crate) async fn waiting_gateway(instance: &Instance, event: &str) -> Child {
    let file = instance.file("waiting.log");
    let stderr = std::fs::File::create(&file).unwrap();
    let gateway = next_gateway(instance, "127.0.0.1:0").stderr(stderr).spawn().unwrap();
    eventually("the gateway waits", async || {
        std::fs::read_to_string(&file).ok()?.contains(event).then_some(())
    })
    .await;
    gateway
}

/// Migrates to the next release, with another fold, and keeps it from building the states of the last partition.
pub(crate) async fn unbuilt(instance: &'static Instance, log: &Log) -> SideProjector {
    log.sql.batch_execute(KEEP_UNBUILT).await.unwrap();
    instance.upgrade_to("fold");
    instance.operate(&["migrate", "--mode", "test"]).await;
    SideProjector::start(instance).await
}

/// Waits until the states of the next release are built for all partitions but the last one.
pub(crate) async fn almost_built(log: &Log) {
    within(HEAL, "all states but those of one partition are built", async || {
        let built: i64 = log.sql.query_one(BUILT, &[]).await.unwrap().get(0);
        (built == 7).then_some(())
    })
    .await;
}

#[test]
fn partitions_that_a_new_gateway_leads_before_all_are_built_stay_led_when_the_old_one_comes_back() {
    run(async {
        let instance = Instance::of_test(1).await;
        let log = instance.log().await;
        let old = led(&log.sql).await.into_keys().next().unwrap();
        let (mut early, mut last) = (None, None);
        while early.is_none() || last.is_none() {
            let merchant = Merchant::of(instance).await;
            let of = if merchant.partition().await == 7 { &mut last } else { &mut early };
            *of = Some(merchant);
        }
        let projector = unbuilt(instance, &log).await;
        let waiting = waiting_gateway(instance, "gateway.waits_for_states").await;
        almost_built(&log).await;

        let pid = instance.ready().pids.gateways[0];
        signal(pid, "STOP");
        let new = within(HEAL, "the new gateway leads what is built", async || {
            let mut led = led(&log.sql).await;
            led.remove(&old);
            let (new, partitions) = led.pop_first()?;
            let is_moved = shapes(&log).await.len() == 2;
            (is_moved && partitions == [0, 1, 2, 3, 4, 5, 6]).then_some(new)
        })
        .await;
        signal(pid, "CONT");
        let both = BTreeMap::from([(new.clone(), vec![0, 1, 2, 3, 4, 5, 6]), (old, vec![7])]);
        // Also when both have seen each other, and the new heads.
        for _ in 0..5 {
            let renewed = async || {
                log.sql.query_one("SELECT min(expires_at)::text FROM ledger.leases", &[]).await.unwrap()
            };
            let before: String = renewed().await.get(0);
            eventually("each leads what it alone can, a round later", async || {
                let now: String = renewed().await.get(0);
                (now != before && led(&log.sql).await == both).then_some(())
            })
            .await;
        }
        for merchant in [early.unwrap(), last.unwrap()] {
            merchant.post("/v1/spend_keys", &json!({"name": "at the old gateway"})).await.expect(201);
        }
        log.sql.batch_execute(LET_BUILD).await.unwrap();
        within(HEAL, "the new gateway leads all partitions", async || {
            (led(&log.sql).await.get(&new)?.len() == 8).then_some(())
        })
        .await;
        drop((waiting, projector));
        put_away(instance).await;
    });
}

#[test]
fn a_new_gateway_whose_address_is_taken_leads_nothing() {
    run(async {
        let instance = Instance::of_test(1).await;
        let log = instance.log().await;
        let (before, leaders) = (shapes(&log).await, led(&log.sql).await);
        instance.upgrade_to("fold");
        instance.operate(&["migrate", "--mode", "test"]).await;
        // Nothing that it would wait for delays the error: no projector builds its read models.
        let taken = instance.gateway(0).to_string();
        let ended = tokio::time::timeout(HEAL, next_gateway(instance, &taken).output()).await;
        let output = ended.expect("it fails early").unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{error}");
        assert!(error.contains(&format!("cannot listen on {taken}")), "{error}");
        assert_eq!((shapes(&log).await, led(&log.sql).await), (before, leaders));
        put_away(instance).await;
    });
}

#[test]
fn a_new_gateway_waits_for_its_read_models_and_leads_nothing_before() {
    run(async {
        let instance = Instance::of_test(1).await;
        let log = instance.log().await;
        let before = shapes(&log).await;
        instance.upgrade_to("fold");
        let output = next_gateway(instance, "127.0.0.1:0").output().await.unwrap();
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.contains("run `farthing migrate`"), "{output}");
        instance.operate(&["migrate", "--mode", "test"]).await;
        let mut waiting = waiting_gateway(instance, "gateway.waits_for_read_models").await;
        assert_eq!(shapes(&log).await, before);
        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "a generation that is not built is not compared: {report}");
        let error = prune_refused(instance).await;
        assert!(error.contains("gateway gw_"), "{error}");
        let refused = instance.command(&["prune", "--force"]).await;
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains("states of an earlier release"), "{error}");
        let projector = SideProjector::start(instance).await;
        within(HEAL, "the gateway takes over", async || (shapes(&log).await != before).then_some(())).await;
        waiting.start_kill().unwrap();
        waiting.wait().await.unwrap();
        drop(projector);
        put_away(instance).await;
    });
}
