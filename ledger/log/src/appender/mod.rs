//! The appender: group commit. One task per process drains a bounded queue into one transaction: read the head, decide
//! every command in arrival order, append, answer every caller. There is no timer: the next batch collects
//! the commands that arrive while one commits. A full queue refuses at once ([`queue`]).
//!
//! Invariant: a command succeeds only after its facts are durable, and fails only when they are known not to be in the
//! log. An unknown commit is resolved by looking up the batch's first event.

mod batch;
mod failure;
mod idempotent;
mod job;
mod queue;
mod resolve;
mod session;
#[cfg(test)]
mod simulation;
mod store;
mod writer;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::idempotent::{ClaimEnd, ClaimRecord, IdempotentOutcome};
use self::job::{CommandJob, Job, Waiter};
pub use self::queue::QueueLimits;
use self::queue::{Place, Places, SETTLEMENTS};
use self::session::PostgresStore;
use self::store::LogStore;
use self::writer::Writer;
use super::connect::Role;
use super::wake_up;
use farthing_core::command::{Command, Refusal};
use farthing_core::partition::Partition;

/// The most commands in one transaction.
const MAX_BATCH: usize = 512;

/// Why a command has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Refused; nothing was appended.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The log cannot be written now; nothing was appended.
    #[error("the ledger is unavailable: {0}")]
    Unavailable(String),
    /// The command cannot be decided or appended, and would fail again; nothing was appended.
    #[error("the command failed: {0}")]
    Internal(String),
    /// The queue is full, or the command has waited in it for too long; nothing was appended.
    #[error("too many commands wait for the ledger")]
    Overloaded,
}

/// The settings of an appender.
#[derive(Debug, Clone)]
pub struct AppenderConfig {
    /// The database of the log.
    pub database_url: String,
    /// The role to write under.
    pub role: Role,
    /// The writer's name in the record batches.
    pub writer: String,
    /// The NATS server for wake-up notifications; without one readers poll.
    pub nats_url: Option<String>,
    /// The bounds of its queue.
    pub queue: QueueLimits,
}

/// A handle to the appender's task.
#[derive(Debug, Clone)]
pub struct Appender {
    queue: mpsc::Sender<Box<dyn Job>>,
    places: Places,
    head: watch::Receiver<i64>,
}

impl Appender {
    /// Starts the task. Once `stop` is cancelled it ends, and answers all queued commands first.
    pub fn start(config: AppenderConfig, stop: CancellationToken, tasks: &TaskTracker) -> Self {
        let AppenderConfig { database_url, role, writer, nats_url, queue } = config;
        let store = PostgresStore { database_url, role };
        let (appender, task) = Self::over(store, &writer, queue, stop.clone());
        if let Some(nats_url) = nats_url {
            let heads = vec![(Partition::new(0), appender.head.clone())];
            tasks.spawn(wake_up::publish(nats_url, heads, stop));
        }
        tasks.spawn(async {
            let _guard = AbortOnPanic;
            task.await;
        });
        appender
    }

    /// An appender over `store` with a writer of this name, and its task.
    fn over<S: LogStore>(
        store: S,
        writer: &str,
        limits: QueueLimits,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + use<S>) {
        let (queue, jobs) = mpsc::channel(limits.commands + SETTLEMENTS);
        let (newest, head) = watch::channel(0);
        (
            Self { queue, places: Places::new(limits), head },
            run(Writer::new(store, writer, newest), jobs, stop),
        )
    }

    /// Decides `command` and appends its facts. Returns when they are durable.
    ///
    /// Dropping the future does not withdraw the command.
    pub async fn submit<C: Command>(&self, command: C) -> Result<C::Outcome, Error> {
        let (waiter, answer) = Waiter::new(self.places.take(command.text_bytes())?);
        self.enqueue(Box::new(CommandJob { command, waiter }), answer).await
    }

    /// As [`Appender::submit`], for the end of a call that was sent to its provider: it is never refused for overload.
    /// The number of such commands is bounded by the number of calls in flight.
    pub async fn settle<C: Command>(&self, command: C) -> Result<C::Outcome, Error> {
        let (waiter, answer) = Waiter::new(Place::of_settlement());
        self.enqueue_settlement(Box::new(CommandJob { command, waiter }), answer).await
    }

    /// Queues `job`, which has a place, and waits for its answer. Settlements beyond their places leave it none.
    async fn enqueue<T>(
        &self,
        job: Box<dyn Job>,
        answer: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Error::Overloaded,
            TrySendError::Closed(_) => stopped(),
        })?;
        answer.await.map_err(|_| stopped())?
    }

    /// Queues the settlement `job` and waits for its answer.
    async fn enqueue_settlement<T>(
        &self,
        job: Box<dyn Job>,
        answer: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.queue.send(job).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// The newest position that this appender has seen.
    pub fn head(&self) -> i64 {
        *self.head.borrow()
    }
}

fn stopped() -> Error {
    Error::Unavailable("the appender has stopped".to_owned())
}

/// Aborts the process when the writer panics. Otherwise the process would run on and answer every write with 503.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(event = "appender.panicked", "the appender panicked; the process aborts");
            std::process::abort();
        }
    }
}

async fn run<S: LogStore>(
    mut writer: Writer<S>,
    mut jobs: mpsc::Receiver<Box<dyn Job>>,
    stop: CancellationToken,
) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    loop {
        let received = tokio::select! {
            biased;
            received = jobs.recv_many(&mut batch, MAX_BATCH) => received,
            () = stop.cancelled() => break,
        };
        if received == 0 {
            break;
        }
        let now = Instant::now();
        let (expired, waiting): (Vec<_>, Vec<_>) = batch.drain(..).partition(|job| job.has_expired(now));
        for job in expired {
            job.end(Error::Overloaded);
        }
        if !waiting.is_empty() {
            writer.append(waiting, &mut jobs, &stop).await;
        }
    }
    jobs.close();
    while let Ok(job) = jobs.try_recv() {
        job.fail("the appender is stopping");
    }
}
