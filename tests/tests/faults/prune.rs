//! What an abandoned or an earlier release left: it is dropped on demand alone, and not taken for what is current.

use std::process::{Output, Stdio};
use std::sync::Arc;

use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::Merchant;
use farthing_tests::scratch::{Scratch, operate};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::{eventually, within};
use serde_json::json;
use tokio_postgres::Client;

use crate::load::Load;
use crate::upgrade::{FLAGS, LET_BUILD, almost_built, shapes, unbuilt, waiting_gateway};
use crate::{HEAL, aftermath, put_away, run};

/// The stored states of generations that no partition is led with.
const UNUSED: &str =
    "SELECT count(*) FROM ledger.state WHERE generation <> (SELECT min(generation) FROM ledger.heads)";

const LOCK_BUILD: &str = "\
SELECT pg_try_advisory_lock(hashtextextended('farthing.generation.' || max(generation), 0)) FROM ledger.checkpoints";

/// Another fold counted other debits.
const MISCOUNT: &str = "\
UPDATE ledger.state SET body = replace(body, '\"debits\":', '\"debits\":1')
WHERE kind = 'wallet' AND generation > (SELECT min(generation) FROM ledger.heads)";

const READ_MODELS: &str = "\
SELECT built, number = (SELECT max(number) FROM ledger.read_models WHERE name = $1) AS is_newest
FROM ledger.read_models WHERE name = $1 AND schema_name = $1";

/// Runs a command of the program on a database, as one of the next release if it has this change.
async fn command(database_url: &str, arguments: &[&str], change: Option<&str>) -> Output {
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).args(["--json", "--database-url", database_url]).stdin(Stdio::null());
    command.envs(change.map(|change| ("FARTHING_TEST_NEXT_RELEASE", change)));
    command.output().await.unwrap()
}

/// The error of a command that fails.
fn error_of(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn states_that_an_abandoned_release_began_to_build_are_dropped_and_built_anew() {
    run(async {
        let instance = Instance::of_test(1).await;
        let (log, url) = (instance.log().await, instance.ready().database_url);
        // The states of partition 7 are kept from being built.
        let merchant = Merchant::whose_partition(instance, |partition| partition != 7).await;
        let load = Load::of(merchant, Arc::new(|task| instance.try_gateway(task))).await;
        load.calls(300).await;
        let load = load.stop().await;
        let projector = unbuilt(instance, &log).await;
        let mut waiting = waiting_gateway(instance, "gateway.waits_for_states").await;
        almost_built(&log).await;
        waiting.kill().await.unwrap();

        // The test in place of a gateway that builds. What the killed one had sent may commit until its lock is free.
        let builder = instance.log().await;
        eventually("the lock is free", async || {
            let is_taken: bool = builder.sql.query_one(LOCK_BUILD, &[]).await.unwrap().get(0);
            is_taken.then_some(())
        })
        .await;
        let unused = async || log.sql.query_one(UNUSED, &[]).await.unwrap().get::<_, i64>(0);
        assert!(log.sql.execute(MISCOUNT, &[]).await.unwrap() > 0);
        let before = unused().await;
        let error = error_of(&command(&url, &["prune"], None).await);
        assert!(error.contains("builds the states of generation"), "{error}");
        assert_eq!(unused().await, before);
        drop(builder);
        let report = eventually("the builder's lock is free", async || {
            let output = command(&url, &["prune"], None).await;
            output
                .status
                .success()
                .then(|| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap())
        })
        .await;
        assert_eq!((report["states"].as_i64(), unused().await), (Some(before), 0), "{report}");
        assert_eq!(operate(&url, &["log", "verify"]).await["ok"], true, "what is in use is whole");

        log.sql.batch_execute(LET_BUILD).await.unwrap();
        let gateway = SideGateway::start(instance, &FLAGS).await;
        aftermath::check(instance, &load).await;
        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        drop((gateway, projector));
        put_away(instance).await;
    });
}

#[test]
fn states_are_not_built_from_a_log_that_ends_before_its_head() {
    run(async {
        let instance = Instance::of_test(1).await;
        let log = instance.log().await;
        let before = shapes(&log).await;
        log.sql.batch_execute("UPDATE ledger.heads SET position = position + 1").await.unwrap();
        instance.upgrade_to("fold");
        instance.operate(&["migrate", "--mode", "test"]).await;
        let projector = SideProjector::start(instance).await;
        let waiting = waiting_gateway(instance, "generations.build_failed").await;
        assert_eq!(shapes(&log).await, before);
        drop((waiting, projector));
        put_away(instance).await;
    });
}

/// Whether the tables of a read model that have its plain name are built, and whether they are its newest.
async fn first_of(sql: &Client, model: &str) -> (bool, bool) {
    let row = sql.query_one(READ_MODELS, &[&model]).await.unwrap();
    (row.get("built"), row.get("is_newest"))
}

#[test]
fn a_read_model_that_comes_back_is_built_before_it_is_read() {
    run(async {
        let instance = Instance::of_test(1).await;
        let scratch = Scratch::filled(instance, "comes_back", 0).await;
        let (url, migrate) = (scratch.database_url.as_str(), ["migrate", "--mode", "test"]);
        assert!(command(url, &migrate, Some("form")).await.status.success());
        assert_eq!(operate(url, &migrate).await["read_models"], json!([]), "the form changes no read model");
        assert!(command(url, &migrate, Some("fold")).await.status.success());
        assert_eq!(first_of(&scratch.sql, "customers").await, (true, false));

        // A projector of the old release keeps its tables: they have not come back.
        let projector = SideProjector::on(instance, url).await;
        let locks = "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
            WHERE locktype = 'advisory' AND granted AND datname = current_database()";
        eventually("the projector works on all read models", async || {
            let held: i64 = scratch.sql.query_one(locks, &[]).await.unwrap().get(0);
            (held >= 11).then_some(())
        })
        .await;
        assert_eq!(operate(url, &migrate).await["read_models"], json!([]));
        assert_eq!(first_of(&scratch.sql, "customers").await, (true, false));
        drop(projector);

        let report = within(HEAL, "the projector's locks are free", async || {
            let report = operate(url, &migrate).await;
            (report["read_models"] != json!([])).then_some(report)
        })
        .await;
        assert_eq!(report["read_models"], json!(["customers", "requests"]), "{report}");
        assert_eq!(first_of(&scratch.sql, "customers").await, (false, true));
        assert_eq!(first_of(&scratch.sql, "meters").await, (true, true), "it never went");
        assert!(error_of(&command(url, &["prune"], None).await).contains("is not built yet"));
        let projector = SideProjector::on(instance, url).await;
        within(HEAL, "it is built again", async || {
            (first_of(&scratch.sql, "customers").await == (true, true)
                && first_of(&scratch.sql, "requests").await == (true, true))
                .then_some(())
        })
        .await;
        let dropped = operate(url, &["prune"]).await["read_models"].clone();
        assert_eq!(dropped.as_array().map(Vec::len), Some(2), "what the other release used: {dropped}");
        drop(projector);
        put_away(instance).await;
    });
}
