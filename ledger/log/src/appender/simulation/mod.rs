//! A deterministic simulation of appenders: the real queue, batching, writer and resolution of commits in doubt, over a
//! store in memory whose connections fail ([`database`]), in simulated time. Several writers share the log; they are
//! killed, stopped and started again.
//!
//! All choices of a run come from its seed. A failing run prints its seed; `FARTHING_SIMULATION_SEED` makes that run
//! again, and `FARTHING_SIMULATION_RUNS` sets how many new seeds are tried.

mod backend;
mod calls;
mod check;
mod client;
mod connection;
mod database;
mod isolation;
mod keys;
mod overload;
mod single_appender;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::check::check;
use self::client::{Book, Client, Habits, register};
use self::database::{APPENDED_TWICE, Counts, Database};
use super::{Appender, QueueLimits};

/// Seeds that are always run. Together their runs see everything that can happen; a seed that fails is added.
const KEPT: [u64; 2] = [10, 18];

/// New seeds in a run of the tests, unless the environment says otherwise.
const RUNS: u64 = 4;

/// Writers that share the log.
const WRITERS: usize = 3;

/// Clients that call at the same time.
const CLIENTS: usize = 4;

/// Parts of a run, each with its own writers at work and its own faults.
const PHASES: usize = 8;

/// Commands of one client in a phase.
const COMMANDS: usize = 90;

/// A phase that takes longer has hung, in simulated time.
const PHASE_TIMEOUT: Duration = Duration::from_hours(2);

/// A process with an appender.
struct Process {
    appender: Appender,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Process {
    fn start(database: &Database, at: usize) -> Self {
        let stop = CancellationToken::new();
        let (appender, task) =
            Appender::over(database.clone(), &format!("writer {at}"), QueueLimits::default(), stop.clone());
        Self { appender, stop, task: tokio::spawn(task) }
    }
}

/// The processes that run, in their places.
#[derive(Clone)]
struct Processes(Arc<Mutex<Vec<Process>>>);

impl Processes {
    fn start(database: &Database) -> Self {
        Self(Arc::new(Mutex::new((0..WRITERS).map(|at| Process::start(database, at)).collect())))
    }

    fn appender(&self, at: usize) -> Appender {
        self.0.lock().unwrap()[at].appender.clone()
    }

    /// Ends the process at `at`, at once or after it has answered what waits, and starts another in its place.
    async fn replace(&self, database: &Database, at: usize, end: End) {
        let new = Process::start(database, at);
        let old = std::mem::replace(&mut self.0.lock().unwrap()[at], new);
        match end {
            End::Killed => old.task.abort(),
            End::Stopped => old.stop.cancel(),
        }
        if let Err(error) = old.task.await {
            assert!(error.is_cancelled(), "a writer panicked: {error}");
        }
    }

    /// Stops all; each must end by itself.
    async fn stop(self) {
        let processes = std::mem::take(&mut *self.0.lock().unwrap());
        for Process { appender, stop, task } in processes {
            stop.cancel();
            task.await.expect("a writer panicked");
            drop(appender);
        }
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Stopped,
}

/// One run. Returns how often things happened, and the keys of the log.
async fn simulate(seed: u64) -> (Counts, Vec<String>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let database = Database::new(random.fork());
    let processes = Processes::start(&database);
    let book = Book::default();
    register(&processes.appender(0)).await;
    for phase in 0..PHASES {
        let habits = Habits {
            main: random.usize(..WRITERS),
            // Every call in two, or in so many, may go to any writer.
            strays: [2, 50, 200][random.usize(..3)],
            // Rare calls leave the head where it is for long: then what arrives late could still append.
            pause_ms: [10, 10, 8_000][random.usize(..3)],
            // Without the commands that always need the head's lock, a writer alone soon appends without it.
            is_plain: random.u8(..3) > 0,
        };
        database.fail([0, 5, 15, 60][random.usize(..4)]);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| {
                let client = Client {
                    number: phase * CLIENTS + at,
                    random: random.fork(),
                    processes: processes.clone(),
                    habits,
                    book: book.clone(),
                    database: database.clone(),
                };
                tokio::spawn(client.call(COMMANDS))
            })
            .collect();
        let disturbed = tokio::spawn(disturb(random.fork(), database.clone(), processes.clone()));
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
    processes.stop().await;
    // What is still on its way arrives.
    sleep(Duration::from_mins(2)).await;
    let disk = database.disk();
    check(&disk, &book);
    assert_eq!(database.counts().0.get(APPENDED_TWICE), None);
    (database.counts(), disk.events.iter().map(|row| row.key.clone()).collect())
}

/// Ends processes at random times, in some phases.
async fn disturb(mut random: fastrand::Rng, database: Database, processes: Processes) {
    if random.bool() {
        return;
    }
    loop {
        sleep(Duration::from_millis(random.u64(200..5_000))).await;
        let at = random.usize(..WRITERS);
        let end = if random.bool() { End::Killed } else { End::Stopped };
        database.count(match end {
            End::Killed => "a writer was killed",
            End::Stopped => "a writer was stopped",
        });
        processes.replace(&database, at, end).await;
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
fn writers_over_failing_connections_keep_the_log_whole_and_answer_truthfully() {
    if let Some(seed) = variable("FARTHING_SIMULATION_SEED") {
        run(seed);
        return;
    }
    for _ in 0..variable("FARTHING_SIMULATION_RUNS").unwrap_or(RUNS) {
        run(fastrand::u64(..));
    }
}

/// The test above proves nothing of what its runs never do.
#[test]
fn the_kept_runs_see_everything_that_can_happen() {
    let mut seen = BTreeMap::<&str, u64>::new();
    for seed in KEPT {
        for (what, count) in run(seed).0.0 {
            *seen.entry(what).or_default() += count;
        }
    }
    let unseen: Vec<_> = [
        "an append without a lock",
        "an append under the lock",
        "an append found the head moved",
        "an append was fenced out",
        "an append repeated a fact",
        "an append arrived twice",
        "a transaction ended for being idle",
        "a writer caught up with others",
        "a commit in doubt was found",
        "a commit in doubt was not found",
        "a writer was killed",
        "a writer was stopped",
        "a command was decided under a claim",
        "a call was opened under a claim",
        "a settlement was tried again",
        "a claim was answered",
        "a claim was released",
        "a released claim was made anew",
        "a claim was reused",
        "a claim with an answer was repeated",
        "a claim of a call in flight was repeated",
        "a claim of a call without an answer was repeated",
        "a customer was deleted",
    ]
    .into_iter()
    .filter(|what| !seen.contains_key(what))
    .collect();
    assert!(unseen.is_empty(), "never seen: {unseen:?} in {seen:?}");
}

#[test]
fn a_seed_decides_the_whole_run() {
    let (one, other) = (run(KEPT[0]), run(KEPT[0]));
    assert_eq!(one.1, other.1);
    assert_eq!(one.0, other.0);
}
