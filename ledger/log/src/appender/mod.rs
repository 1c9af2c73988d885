//! The appender of a partition: group commit. One task per partition drains a bounded queue while this gateway leads:
//! decide every command in arrival order, append, answer every caller. The next batch collects the commands that arrive
//! while one commits. No caller waits for a timer; a batch that no caller waits for does ([`early`]). A full queue refuses
//! at once ([`queue`]).
//!
//! Invariant: a command succeeds only after its facts are durable, and fails only when they are known not to be in the
//! log. An unknown commit is resolved by looking up the batch's first event.

mod append_statement;
mod batch;
mod cache_bound;
mod early;
mod failure;
mod group_commit;
mod idempotent;
mod job;
mod leader;
mod queue;
mod session;
#[cfg(test)]
mod simulation;
mod state_reads;
mod store;
mod term;

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::early::Early;
pub use self::group_commit::GroupCommit;
pub use self::idempotent::{ClaimEnd, ClaimRecord, IdempotentOutcome};
use self::job::{CommandJob, Job, Waiter};
use self::leader::{Leader, is_valid};
pub use self::queue::QueueLimits;
use self::queue::{Places, SETTLEMENTS};
use self::session::PostgresStore;
use self::store::LogStore;
use super::abort_on_panic::AbortOnPanic;
use super::connect::Role;
use super::metrics::LedgerMetrics;
use farthing_core::command::{Command, Refusal};
use farthing_core::ids::MerchantId;
use farthing_core::partition::Partition;
use farthing_telemetry::{Ages, Gauge};

/// The most commands in one batch.
const MAX_BATCH: usize = 512;

/// A batch with so many bytes of events, personal data and stored answers takes no further command. The last
/// one may exceed this, so that a command of any length is taken.
const MAX_BATCH_BYTES: usize = 3_584 * 1024;

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
    /// The answer of the partition's leader was lost: whether the command was carried out is not known.
    #[error("whether the command was carried out is not known: {0}")]
    Unknown(String),
    /// Another gateway leads the partition; nothing was appended.
    #[error("another gateway leads the partition")]
    Moved,
}

/// The lease of a partition, as this gateway knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// This gateway does not have it, or hands it over.
    None,
    /// This gateway has it until then, unless it is renewed.
    Held {
        /// Earlier than the lease expires by the clock of Postgres.
        until: Instant,
    },
}

/// The settings of an appender.
#[derive(Debug, Clone)]
pub struct AppenderConfig {
    /// The database of the log.
    pub database_url: String,
    /// The partition.
    pub partition: Partition,
    /// The role to write under.
    pub role: Role,
    /// The gateway's name in the lease.
    pub gateway: String,
    /// The writer's name in the record batches.
    pub writer: String,
    /// The bounds of its queue.
    pub queue: QueueLimits,
    /// Commits for all partitions of this process; `None` to commit by itself.
    pub group: Option<GroupCommit>,
    /// The metrics.
    pub metrics: Arc<LedgerMetrics>,
}

/// A handle to the appender's task.
#[derive(Debug, Clone)]
pub struct Appender {
    queue: mpsc::Sender<Box<dyn Job>>,
    places: Places,
    hurry: Arc<Notify>,
    head: watch::Receiver<i64>,
    leads: watch::Receiver<bool>,
    failures: watch::Receiver<u32>,
    checkpoint_lag: Gauge,
}

impl Appender {
    /// Starts the task, which leads while it has the `lease`. Once `stop` is cancelled it ends, and answers all queued
    /// commands first.
    pub fn start(
        config: AppenderConfig,
        lease: watch::Receiver<Lease>,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let AppenderConfig { database_url, partition, role, gateway, writer, queue, group, metrics } = config;
        let store = PostgresStore { database_url, partition, role, gateway, group };
        let (appender, task) = Self::over(store, &writer, (queue, metrics), lease, stop.clone());
        tasks.spawn(async {
            let _guard = AbortOnPanic("the appender");
            task.await;
        });
        appender
    }

    /// An appender over `store` with a writer of this name, and its task.
    fn over<S: LogStore + Sync>(
        store: S,
        writer: &str,
        (limits, metrics): (QueueLimits, Arc<LedgerMetrics>),
        lease: watch::Receiver<Lease>,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + use<S>) {
        let (queue, jobs) = mpsc::channel(limits.commands + SETTLEMENTS);
        let (newest, head) = watch::channel(0);
        let (is_leader, leads) = watch::channel(false);
        let (failed, failures) = watch::channel(0);
        let writer = writer.to_owned();
        let hurry = Arc::new(Notify::new());
        let checkpoint_lag = Gauge::default();
        let task = Task {
            store,
            writer,
            metrics: Arc::clone(&metrics),
            newest,
            is_leader,
            failures: failed,
            jobs,
            hurry: Arc::clone(&hurry),
            checkpoint_lag: checkpoint_lag.clone(),
            lease,
            stop,
        };
        let places = Places::new(limits, metrics);
        (Self { queue, places, hurry, head, leads, failures, checkpoint_lag }, task.run())
    }

    /// Decides `command` of this owner and appends its facts. Returns when they are durable.
    ///
    /// Dropping the future does not withdraw the command.
    pub async fn submit<C: Command>(
        &self,
        owner: Option<MerchantId>,
        command: C,
    ) -> Result<C::Outcome, Error> {
        let (waiter, answer) = Waiter::new(self.places.take(owner, command.text_bytes())?);
        self.enqueue(Box::new(CommandJob { command, waiter }), answer).await
    }

    /// As [`Appender::submit`], for the end of a call that was sent to its provider: it is never refused for overload.
    /// The number of such commands is bounded by the number of calls in flight.
    pub async fn settle<C: Command>(&self, command: C) -> Result<C::Outcome, Error> {
        let (waiter, answer) = Waiter::new(self.places.of_settlement());
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
        answer.await.map_err(|_| lost())?
    }

    /// Queues the settlement `job` and waits for its answer.
    async fn enqueue_settlement<T>(
        &self,
        job: Box<dyn Job>,
        answer: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.queue.send(job).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| lost())?
    }

    /// The newest position that this appender has made durable.
    pub fn head(&self) -> watch::Receiver<i64> {
        self.head.clone()
    }

    /// Whether this gateway leads the partition now. After the lease has ended, it leads until what it had decided is
    /// answered.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    /// The commands that are not answered yet.
    pub(crate) fn unanswered(&self) -> Ages {
        self.places.unanswered()
    }

    /// The events behind the checkpoint, while this gateway leads.
    pub(crate) fn checkpoint_lag(&self) -> Gauge {
        self.checkpoint_lag.clone()
    }

    /// How often in a row it could not begin to lead, commit, or learn whether it had, although it had the lease.
    pub fn failures(&self) -> watch::Receiver<u32> {
        self.failures.clone()
    }
}

/// The appender ended without an answer to a command that it had taken.
fn lost() -> Error {
    Error::Unknown("the appender has stopped".to_owned())
}

fn stopped() -> Error {
    Error::Unavailable("the appender has stopped".to_owned())
}

/// The task of an appender.
struct Task<S: LogStore> {
    store: S,
    writer: String,
    metrics: Arc<LedgerMetrics>,
    newest: watch::Sender<i64>,
    is_leader: watch::Sender<bool>,
    failures: watch::Sender<u32>,
    jobs: mpsc::Receiver<Box<dyn Job>>,
    hurry: Arc<Notify>,
    checkpoint_lag: Gauge,
    lease: watch::Receiver<Lease>,
    stop: CancellationToken,
}

impl<S: LogStore + Sync> Task<S> {
    /// Leads whenever there is a lease, and refuses all commands meanwhile.
    async fn run(mut self) {
        while self.wait_for_lease().await {
            let _ = self.is_leader.send(true);
            let leader = Leader {
                store: &self.store,
                name: &self.writer,
                metrics: &self.metrics,
                newest: &self.newest,
                failures: &self.failures,
                failed_appends: 0,
                jobs: &mut self.jobs,
                hurry: &self.hurry,
                checkpoint_lag: &self.checkpoint_lag,
                lease: &mut self.lease,
                stop: &self.stop,
                retries: VecDeque::new(),
                conflicts: 0,
            };
            leader.lead().await;
            let _ = self.is_leader.send(false);
            if self.stop.is_cancelled() {
                break;
            }
        }
        self.jobs.close();
        while let Ok(job) = self.jobs.try_recv() {
            job.fail("the appender is stopping");
        }
    }

    /// Waits for a lease; `false` when the process stops.
    async fn wait_for_lease(&mut self) -> bool {
        loop {
            if is_valid(&self.lease.borrow_and_update()) {
                return true;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                changed = self.lease.changed() => if changed.is_err() {
                    return false;
                },
                job = self.jobs.recv() => match job {
                    Some(job) => job.end(Error::Moved),
                    None => return false,
                },
            }
        }
    }
}
