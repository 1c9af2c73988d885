//! Faults: processes killed under load. Each scenario has its own instance and ends with an independent check that no charge
//! was lost or doubled and that all responses equal a fold of the log.
//!
//! Many faults are repeated twice, or as often as `FARTHING_FAULT_ROUNDS` says. `FARTHING_FAULT_SEED` repeats the
//! random faults of an earlier run; a failing run prints the command.

#![expect(clippy::unwrap_used, reason = "tests unwrap, their helpers included")]

mod abandoned;
mod aftermath;
mod archive;
mod checkpoints;
mod cluster;
mod cut_off;
mod documented;
mod failover;
mod feed;
mod fencing;
mod follower_commands;
mod group_commit;
mod hung_threads;
mod idle;
mod leaders;
mod load;
mod outdated;
mod prune;
mod read_tables;
mod readiness;
mod renewal;
mod repeated;
mod seeds;
mod severed;
mod shop;
mod stored_log;
mod tampering;
mod tampering_beside;
mod tampering_rehashed;
mod tampering_scene;
mod tampering_trials;
mod twins;
mod unconfirmed;
mod unled;
mod unsettled;
mod upgrade;
mod webhooks;

use std::cell::Cell;
use std::time::Duration;

use farthing_tests::instance::Instance;
use farthing_tests::process::{is_running, kill};
use farthing_tests::ready::Pids;
use farthing_tests::servers;
use farthing_tests::wait::within;

use self::load::Load;

/// The timeout for a killed process to be replaced.
const HEAL: Duration = Duration::from_mins(1);

fn rounds() -> u32 {
    std::env::var("FARTHING_FAULT_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

async fn instance() -> &'static Instance {
    Instance::of_test(2).await
}

/// Kills `victim` under load, at a different moment each round, and checks the aftermath.
async fn survives(victim: fn(&Pids) -> u32, prepare: impl AsyncFn(&Instance)) {
    let instance = instance().await;
    for round in 0..rounds() {
        let load = Load::start(instance).await;
        load.calls(200).await;
        tokio::time::sleep(Duration::from_millis(u64::from(round * 37 % 101))).await;
        let pid = victim(&instance.ready().pids);
        prepare(instance).await;
        kill(pid);
        within(HEAL, "the killed process is back", async || {
            let now = victim(&instance.ready().pids);
            (now != pid && is_running(now)).then_some(())
        })
        .await;
        load.calls(200).await;
        let load = load.stop().await;
        aftermath::check(instance, &load).await;
    }
    put_away(instance).await;
}

thread_local! {
    /// Whether the test of this thread has ended as each fault test must.
    static IS_PUT_AWAY: Cell<bool> = const { Cell::new(false) };
}

/// Runs a fault test. It must end with [`put_away`], or say why it cannot.
fn run(test: impl Future<Output = ()>) {
    IS_PUT_AWAY.set(false);
    farthing_tests::run(test);
    assert!(
        IS_PUT_AWAY.get(),
        "a fault test ends with `put_away`, which compares the read tables with the log"
    );
}

/// Ends a test: asserts that every read table, built again from the log, has the SHA-256 of the live one, and removes the
/// instance.
async fn put_away(instance: &Instance) {
    put_away_with(instance, &[]).await;
}

/// Ends a test whose log is partly in an archive, which `flags` name.
async fn put_away_with(instance: &Instance, flags: &[&str]) {
    read_tables::equal_their_rebuild(instance, flags).await;
    remove(instance).await;
}

/// Why the read tables of a test are not compared with the log at its end.
#[derive(Debug, Clone, Copy)]
enum Uncompared {
    /// The test changed the log itself, and leaves it so.
    LogIsBroken,
}

/// Ends a test without the comparison.
async fn put_away_uncompared(instance: &Instance, why: Uncompared) {
    match why {
        Uncompared::LogIsBroken => remove(instance).await,
    }
}

async fn remove(instance: &Instance) {
    instance.stop().await;
    instance.clear();
    IS_PUT_AWAY.set(true);
}

#[test]
fn every_fault_test_runs_with_the_check_of_its_end() {
    let folder = std::path::Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests/faults");
    let (mut folders, mut sources) = (vec![folder], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { &mut folders } else { &mut sources }.push(path);
        }
    }
    sources.retain(|file| !file.ends_with("main.rs"));
    assert!(sources.len() > 25, "{sources:?}");
    for source in sources {
        let text = std::fs::read_to_string(&source).unwrap();
        // Each import, to its end, and each path in an expression.
        let uses = text.split("farthing_tests::").skip(1).filter_map(|rest| rest.split(';').next());
        let mut words = uses.flat_map(|used| used.split(|character: char| !character.is_alphanumeric()));
        assert!(!words.any(|word| word == "run"), "{} must use crate::run", source.display());
    }
}

#[test]
fn killing_a_gateway_loses_and_doubles_no_charge() {
    run(survives(|pids| pids.gateways[0], async |_| {}));
}

#[test]
fn killing_the_projector_only_delays_reads() {
    run(survives(|pids| pids.projectors[0], async |_| {}));
}

#[test]
fn killing_postgres_loses_and_doubles_no_charge() {
    if servers::has_own_postgres("kills Postgres") {
        run(survives(|pids| pids.postgres.unwrap(), async |_| {}));
    }
}

#[test]
fn killing_nats_disturbs_no_call() {
    if servers::has_own_nats("kills NATS") {
        run(survives(|pids| pids.nats.unwrap(), async |_| {}));
    }
}

#[test]
fn deleting_the_whole_jetstream_store_loses_nothing() {
    if !servers::has_own_nats("deletes the store of NATS") {
        return;
    }
    run(survives(
        |pids| pids.nats.unwrap(),
        async |instance| {
            let store = find_folder(&instance.data, "jetstream").expect("a JetStream store");
            std::fs::remove_dir_all(store).expect("the store can be deleted");
        },
    ));
}

fn find_folder(under: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(under).ok()?.flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    let found = folders.iter().find(|path| path.file_name().is_some_and(|there| there == name)).cloned();
    found.or_else(|| folders.iter().find_map(|folder| find_folder(folder, name)))
}

fn all(pids: &Pids) -> Vec<u32> {
    [pids.postgres, pids.nats]
        .into_iter()
        .flatten()
        .chain(pids.gateways.clone())
        .chain(pids.projectors.clone())
        .collect()
}

#[test]
fn an_instance_that_is_stopped_under_load_ends_cleanly_and_restarts_without_loss() {
    run(async {
        let instance = instance().await;
        let first = instance.ready();
        for _ in 0..rounds() {
            let load = Load::start(instance).await;
            load.calls(200).await;
            let pids = all(&instance.ready().pids);
            let ended = instance.stop().await;
            assert!(ended.success(), "{ended}: {}", instance.output());
            assert!(pids.iter().all(|pid| !is_running(*pid)), "a process still runs");
            instance.launch(2).await;
            let again = instance.ready();
            assert_eq!((&again.merchant_id, &again.secret_key), (&first.merchant_id, &first.secret_key));
            load.calls(50).await;
            let load = load.stop().await;
            aftermath::check(instance, &load).await;
        }
        put_away(instance).await;
    });
}

#[test]
fn an_instance_whose_launcher_is_killed_leaves_no_process_and_restarts() {
    run(async {
        let instance = instance().await;
        let load = Load::start(instance).await;
        load.calls(200).await;
        let pids = all(&instance.ready().pids);
        kill(instance.pid().expect("the launcher runs"));
        // Gateways first wait for calls in flight.
        within(HEAL * 2, "nothing is left running", async || {
            pids.iter().all(|pid| !is_running(*pid)).then_some(())
        })
        .await;
        instance.stop().await;
        instance.launch(2).await;
        load.calls(50).await;
        let load = load.stop().await;
        aftermath::check(instance, &load).await;
        put_away(instance).await;
    });
}
