//! A deterministic simulation of gateways that share partitions: the real work for leases, routes and commands to other
//! gateways, and the real queue, leader, terms, checkpoints and resolution of commits in doubt of each partition. They run
//! over a store in memory ([`database`]) and a network ([`peers`]) that fail, in simulated time. Gateways are killed,
//! stopped, stalled, and cut off from the store or from each other; leases lapse and are handed over.
//!
//! All choices of a run come from its seed. A failing run prints its seed; `FARTHING_SIMULATION_SEED` makes that run
//! again, and `FARTHING_SIMULATION_RUNS` sets how many new seeds are tried.

#![expect(clippy::large_futures, reason = "the futures of a client live as long as its calls")]

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
mod leases;
mod log;
mod many_states;
mod merchant;
mod overload;
mod peers;
mod reads;
mod single_gateway;
mod stall;
mod take_over;

use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farthing_core::ids::SecretKeyId;
use farthing_core::partition::Partition;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use ulid::Ulid;

use self::check::check;
use self::client::{Answer, Book, Client, Habits};
use self::database::{Counts, Database};
use self::gateway::{Cut, End, GATEWAYS, Gateways, LEASE, PARTITIONS};
pub(super) use self::merchant::{issue, registration};

/// Seeds that are always run. Together their runs see everything that can happen; a seed that fails is added.
const KEPT: [u64; 11] = [
    1,
    2,
    3,
    19,
    25,
    37,
    89,
    157,
    10_750_157_002_574_544_978,
    14_217_334_507_674_261_679,
    17_997_577_719_297_249_767,
];

/// New seeds in a run of the tests, unless the environment says otherwise.
const RUNS: u64 = 4;

/// Clients that call at the same time.
const CLIENTS: usize = 4;

/// Parts of a run, each with its own faults.
const PHASES: usize = 4;

/// Commands of one client in a phase.
const COMMANDS: usize = 45;

/// A phase that takes longer has hung, in simulated time.
const PHASE_TIMEOUT: Duration = Duration::from_hours(2);

/// One run. Returns how often things happened, and the log.
async fn simulate(seed: u64) -> (Counts, Vec<String>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let database = Database::new(PARTITIONS, random.fork());
    let partitions: Vec<_> = (0..PARTITIONS).map(|number| database.of(Partition::new(number))).collect();
    let gateways = Gateways::start(&database, random.fork());
    let books: Vec<_> = partitions.iter().map(|_| Book::default()).collect();
    for database in &partitions {
        let (ledger, _) = gateways.ledger(random.usize(..GATEWAYS));
        ledger.submit(database.partition(), registration()).await.expect("nothing fails yet");
    }
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
                    habits,
                    book: books[at % partitions.len()].clone(),
                    database: partitions[at % partitions.len()].clone(),
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
        for (database, book) in partitions.iter().zip(&books) {
            end(database, &gateways, book).await;
        }
        gateways.stop().await;
    };
    timeout(PHASE_TIMEOUT, ended).await.expect("the gateways stop");
    database.notes.check();
    let mut log = Vec::new();
    for (database, book) in partitions.iter().zip(&books) {
        let disk = database.disk();
        check(&disk, book);
        let line = |row: &disk::Row| format!("{} {} {}", row.position, row.writer, row.record);
        log.extend(disk.events.iter().map(line));
    }
    (database.notes.counts(), log)
}

/// Submits the last command of a partition, after its leader was killed.
async fn end(database: &Database, gateways: &Gateways, book: &Book) {
    let partition = database.partition();
    let last = SecretKeyId::new(Ulid::from_parts(4, 1));
    gateways.replace(leader(gateways, partition).await, End::Killed).await;
    sleep(2 * LEASE).await;
    let (ledger, _) = gateways.ledger(leader(gateways, partition).await);
    assert_eq!(ledger.submit(partition, issue(last)).await, Ok(()), "nothing fails any more");
    assert_eq!(*ledger.appender(partition).head().borrow(), database.disk().head.position);
    book.note(&format!("{last}/issued"), Answer::Done(None));
}

/// The place of the gateway that leads a partition, once one does.
async fn leader(gateways: &Gateways, partition: Partition) -> usize {
    loop {
        if let Some(at) = gateways.holder(partition)
            && *gateways.ledger(at).0.appender(partition).leads().borrow()
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
        let partition = Partition::new(random.i16(0..PARTITIONS));
        let at = if random.bool() { any } else { gateways.holder(partition).unwrap_or(any) };
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
            7 | 8 => {
                database.notes.count("a gateway was cut off the store");
                gateways.cut(at, Cut::Store, lasts);
            }
            9 | 10 => {
                database.notes.count("a gateway was cut off the others");
                gateways.cut(at, Cut::Peers, lasts);
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
const EVERYTHING: [&str; 51] = [
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
    "a lease was given back",
    "a lease was claimed that another gateway had claimed",
    "a gateway was stopped during a commit",
    "a command was sent to another gateway",
    "the answer of another gateway was lost",
    "a command arrived late at another gateway",
    "a gateway did not reach another",
    "a gateway was cut off the others",
    "the log was searched for a call",
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
