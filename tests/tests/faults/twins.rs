//! Two projectors: one works, one stands by. A projector that hung during a takeover writes nothing late.

use farthing_tests::client::{Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::{kill, signal};
use farthing_tests::wait::within;
use serde_json::json;

use crate::load::Load;
use crate::{HEAL, aftermath, instance, put_away, rounds, run};

/// Ends the sessions of all projectors, as Postgres does when their machine is unreachable.
const END_SESSIONS: &str = "\
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'farthing_projector'";

/// The number of sessions with the lock of the relay, and the highest number with the lock of one projection.
const LOCKS: &str = "\
SELECT count(*), COALESCE(max(holders), 0) FROM (
    SELECT count(*) AS holders FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
    WHERE datname = current_database() AND locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'
    GROUP BY classid, objid, objsubid
) AS held";

#[test]
fn a_projector_that_hung_during_a_takeover_writes_nothing_late() {
    run(async {
        let instance = Instance::of_test_with(2, &["--projectors", "2"]).await;
        let pids = instance.ready().pids.projectors;
        let log = instance.log().await;
        let load = Load::start(instance).await;
        load.calls(100).await;
        for round in 0..rounds() as usize * 2 {
            let (stalled, twin) = (pids[round % 2], pids[(round + 1) % 2]);
            // At first the projector to be stalled has all locks: its twin's sessions are ended while it is stopped.
            take_over_from(instance, &log, twin).await;
            signal(twin, "CONT");
            load.calls(50).await;
            take_over_from(instance, &log, stalled).await;
            load.calls(50).await;
            signal(stalled, "CONT");
            load.calls(100).await;
            let locks = log.sql.query_one(LOCKS, &[]).await.unwrap();
            assert!(locks.get::<_, i64>(0) > 1 && locks.get::<_, i64>(1) == 1, "{locks:?}");
        }
        load.calls(250).await;
        assert_eq!(instance.ready().pids.projectors, pids, "none of them has ended");
        let load = load.stop().await;
        aftermath::check(instance, &load).await;
        put_away(instance).await;
    });
}

/// Stops `stalled` and ends its sessions; returns when the other one shows new events.
async fn take_over_from(instance: &'static Instance, log: &Log, stalled: u32) {
    signal(stalled, "STOP");
    log.sql.query_one(END_SESSIONS, &[]).await.unwrap();
    let merchant = Merchant::of(instance).await;
    within(HEAL, "the twin has taken over", async || {
        let shown = merchant.get("/v1/connections").await;
        (shown.status == 200 && !is_stale(&shown)).then_some(())
    })
    .await;
}

pub(crate) fn is_stale(response: &Response) -> bool {
    match response.head.header("x-service-stale") {
        Some(value) => {
            assert_eq!(value, "true");
            true
        }
        None => false,
    }
}

#[test]
fn reads_are_marked_stale_only_while_no_projector_works() {
    run(async {
        let instance = instance().await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1").await;
        let get = async |path: &str, number: usize| {
            let request = Request::new("GET", path).bearer(&merchant.secret_key);
            request.send(instance.gateway(number)).await.unwrap()
        };
        for end in ["CONT", "KILL"] {
            let before = get("/v1/connections", 0).await;
            assert!(!is_stale(&before), "{}", before.text());
            let projector = instance.ready().pids.projectors[0];
            signal(projector, "STOP");
            let made = merchant.post("/v1/customers", &json!({"reference_id": end})).await.expect(201);
            for number in [0, 1] {
                let shown = get("/v1/connections", number).await;
                assert_eq!(shown.expect(200), before.json(), "the earlier state");
                assert!(is_stale(&shown), "{:?}", shown.head);
            }
            if end == "KILL" {
                kill(projector);
            }
            signal(projector, "CONT");
            within(HEAL, "reads are fresh again", async || {
                let shown = get("/v1/connections", 1).await;
                shown.expect(200);
                (!is_stale(&shown)).then_some(())
            })
            .await;
            let shown = get("/v1/connections?limit=1", 0).await;
            assert!(!is_stale(&shown));
            assert_eq!(shown.expect(200)["data"][0]["connection_id"], made["customer_id"]);
        }
        put_away(instance).await;
    });
}
