//! A deterministic simulation of gateways that take turns to lead a partition: the real queue, leader, terms, checkpoints
//! and resolution of commits in doubt, over a store in memory whose connections fail ([`database`]), in simulated time.
//! Gateways are killed, stopped, stalled and cut off; leases lapse and are handed over.
//!
//! All choices of a run come from its seed. A failing run prints its seed; `FARTHING_SIMULATION_SEED` makes that run
//! again, and `FARTHING_SIMULATION_RUNS` sets how many new seeds are tried.

mod backend;
mod calls;
mod check;
mod claims;
mod client;
mod connection;
mod database;
mod disk;
mod gateway;
mod history;
mod isolation;
mod keys;
mod merchant;
mod overload;
mod reads;
mod single_gateway;
mod stall;
mod take_over;

use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farthing_core::ids::SecretKeyId;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use ulid::Ulid;

use self::check::check;
use self::client::{Answer, Book, Client, Habits};
use self::database::{Counts, Database};
use self::gateway::{End, GATEWAYS, Gateways, LEASE};
use self::merchant::{issue, register};

/// Seeds that are always run. Together their runs see everything that can happen; a seed that fails is added.
const KEPT: [u64; 8] = [1, 2, 3, 5, 7, 14, 16, 2_271_289_478_793_775_536];

/// New seeds in a run of the tests, unless the environment says otherwise.
const RUNS: u64 = 4;

/// Clients that call at the same time.
const CLIENTS: usize = 4;

/// Parts of a run, each with its own faults.
const PHASES: usize = 8;

/// Commands of one client in a phase.
const COMMANDS: usize = 90;

/// A phase that takes longer has hung, in simulated time.
const PHASE_TIMEOUT: Duration = Duration::from_hours(2);

/// One run. Returns how often things happened, and the log.
async fn simulate(seed: u64) -> (Counts, Vec<String>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let database = Database::new(random.fork());
    let gateways = Gateways::start(&database, random.fork());
    let book = Book::default();
    register(&gateways.appender(leader(&gateways).await)).await;
    for phase in 0..PHASES {
        let habits = Habits {
            // Every call in two, or in so many, may go to any gateway.
            strays: [2, 50, 200][random.usize(..3)],
            // Rare calls leave the head where it is for long: then what arrives late could still append.
            pause_ms: [10, 100, 4_000][random.usize(..3)],
            is_plain: random.bool(),
        };
        database.fail([0, 5, 15, 60][random.usize(..4)]);
        database.slow_down([4, 4, 50][random.usize(..3)]);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| {
                let client = Client {
                    number: phase * CLIENTS + at,
                    random: random.fork(),
                    gateways: gateways.clone(),
                    leader: random.usize(..GATEWAYS),
                    reads: JoinSet::new(),
                    asked: None,
                    habits,
                    book: book.clone(),
                    database: database.clone(),
                };
                tokio::spawn(client.call(COMMANDS))
            })
            .collect();
        let disturbed = tokio::spawn(disturb(random.fork(), database.clone(), gateways.clone()));
        let all = async {
            for client in clients {
                client.await.expect("a client panicked");
            }
        };
        timeout(PHASE_TIMEOUT, all).await.expect("every command is answered");
        disturbed.abort();
        if let Err(error) = disturbed.await {
            assert!(error.is_cancelled(), "{error}");
        }
    }
    database.fail(0);
    // What is still on its way arrives, and all that was disturbed works again.
    sleep(Duration::from_mins(2)).await;
    let ended = async {
        end(&database, &gateways, &book).await;
        gateways.stop().await;
    };
    timeout(PHASE_TIMEOUT, ended).await.expect("the gateways stop");
    let disk = database.disk();
    database.notes.check();
    check(&disk, &book);
    let log = disk.events.iter().map(|row| format!("{} {} {}", row.position, row.writer, row.record));
    (database.notes.counts(), log.collect())
}

/// Submits the last command, to the gateway that leads.
async fn end(database: &Database, gateways: &Gateways, book: &Book) {
    let last = SecretKeyId::new(Ulid::from_parts(4, 1));
    gateways.replace(leader(gateways).await, End::Killed).await;
    sleep(2 * LEASE).await;
    let appender = gateways.appender(leader(gateways).await);
    assert_eq!(appender.submit(issue(last)).await, Ok(()), "nothing fails any more");
    assert_eq!(*appender.head().borrow(), database.disk().head.position);
    book.note(&format!("{last}/issued"), Answer::Done(None));
}

/// The place of the gateway that leads, once one does.
async fn leader(gateways: &Gateways) -> usize {
    loop {
        if let Some(at) = gateways.holder()
            && *gateways.appender(at).leads().borrow()
        {
            return at;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Disturbs gateways at random times, in some phases.
async fn disturb(mut random: fastrand::Rng, database: Database, gateways: Gateways) {
    if random.u8(..4) == 0 {
        return;
    }
    loop {
        sleep(Duration::from_millis(random.u64(200..5_000))).await;
        let any = random.usize(..GATEWAYS);
        let at = if random.bool() { any } else { gateways.holder().unwrap_or(any) };
        let longest = [1_000, 8_000][random.usize(..2)];
        let lasts = Duration::from_millis(random.u64(..longest));
        match random.u8(..12) {
            0 | 1 => {
                database.notes.count("a gateway was killed");
                gateways.replace(at, End::Killed).await;
            }
            2 | 3 => {
                database.notes.count("a gateway was stopped");
                gateways.replace(at, End::Stopped).await;
            }
            4..7 => gateways.stall(at, lasts),
            7..10 => gateways.hand_over(at),
            10 => {
                database.notes.count("a gateway was cut off the store");
                gateways.cut(at, lasts);
            }
            _ => {
                database.notes.count("the store was away");
                database.set_away(true);
                let database = database.clone();
                tokio::spawn(async move {
                    sleep(lasts).await;
                    database.set_away(false);
                });
            }
        }
    }
}

/// Prints how a run is made again if it fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "The same run again: FARTHING_SIMULATION_SEED={} cargo test -p farthing-log --lib simulation",
                self.0
            );
        }
    }
}

fn run(seed: u64) -> (Counts, Vec<String>) {
    let _replay = Replay(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(simulate(seed))
}

/// A number in the environment.
fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn gateways_over_failing_connections_keep_the_log_whole_and_answer_truthfully() {
    if let Some(seed) = variable("FARTHING_SIMULATION_SEED") {
        eprintln!("{:#?}", run(seed).0);
        return;
    }
    let left = AtomicU64::new(variable("FARTHING_SIMULATION_RUNS").unwrap_or(RUNS));
    let another =
        || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while another() {
                    if let Err(failure) = catch_unwind(|| run(fastrand::u64(..))) {
                        // The seed is shown once all threads have ended.
                        left.store(0, Ordering::Relaxed);
                        resume_unwind(failure);
                    }
                }
            });
        }
    });
}

/// The test above proves nothing of what its runs never do.
#[test]
fn the_kept_runs_see_everything_that_can_happen() {
    let mut seen = Counts::new();
    for seed in KEPT {
        let (first, second) = (run(seed), run(seed));
        assert!(first == second, "a seed decides the whole run, and {seed} did not");
        for (what, count) in first.0 {
            *seen.entry(what).or_default() += count;
        }
    }
    let unseen: Vec<_> = EVERYTHING.into_iter().filter(|what| !seen.contains_key(what)).collect();
    assert!(unseen.is_empty(), "never seen: {unseen:?} in {seen:#?}");
}

/// Everything that can happen.
const EVERYTHING: [&str; 44] = [
    "a statement was cancelled",
    "an append",
    "a batch was decided while another committed",
    "a leader loaded a state that it had forgotten",
    "commands waited for a checkpoint",
    "a claim of a call in flight was repeated",
    "a claim of a call without an answer was repeated",
    "an append found the head moved",
    "an append was fenced out",
    "an append repeated a fact",
    "an append arrived twice",
    "a checkpoint was stored",
    "a checkpoint was fenced out",
    "a checkpoint came after a newer one",
    "a checkpoint arrived twice",
    "a call ended between two checkpoints",
    "a request to lead arrived twice",
    "a gateway without the lease could not lead",
    "a lookup of a commit arrived twice",
    "a leader took over a tail",
    "a tail was read in pages",
    "a lease was taken over",
    "a lease was handed over",
    "a lease was to be handed over during a commit",
    "a commit in doubt was found",
    "a commit in doubt was not found",
    "a gateway was killed",
    "a gateway was stopped",
    "a gateway stalled until another led",
    "a gateway was cut off the store",
    "the store was away",
    "a command went to a gateway that does not lead",
    "a command waited for too long",
    "states were read",
    "a command was decided under a claim",
    "a call was opened under a claim",
    "the end of a call proved its opening",
    "a settlement was tried again",
    "a claim was answered",
    "a claim was released",
    "a released claim was made anew",
    "a claim was reused",
    "a claim with an answer was repeated",
    "a customer was deleted",
];
