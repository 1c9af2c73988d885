//! The appender: group commit. One task per process drains a bounded queue into one transaction: see where the
//! head is, decide every command in arrival order, append, answer everyone. No timer: while one batch commits the
//! next gathers.
//!
//! Invariant: a command is answered with success only after its facts are durable, and with a failure only when
//! they are known not to be in the log. An unknown commit is resolved by the facts' keys, never by guessing.

mod batch;
mod claiming;
mod session;
mod writer;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::batch::{Job, Ticket};
pub use self::claiming::{Closing, Keep, Written};
use self::writer::Writer;
use super::connect::Role;
use farthing_core::command::{Command, Refusal};

/// The core-NATS subject on which the newest position is told: a doorbell, not a feed.
pub const DOORBELL: &str = "farthing.head";

/// Commands that may wait for their batch.
const QUEUE: usize = 16_384;

/// The most commands in one transaction.
const MAX_BATCH: usize = 512;

/// At most one ring of the doorbell in this time.
const DOORBELL_PAUSE: Duration = Duration::from_millis(10);

/// Why a command has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Refused; nothing was appended.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The log cannot be written now; nothing was appended.
    #[error("the ledger is unavailable: {0}")]
    Unavailable(String),
}

/// What an appender needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the log is.
    pub database_url: String,
    /// The role to write under.
    pub role: Role,
    /// Who writes, as the events' metadata tells it.
    pub writer: String,
    /// Where to ring; none to leave readers to their polling.
    pub nats_url: Option<String>,
}

/// A handle to the appender's task.
#[derive(Debug, Clone)]
pub struct Appender {
    queue: mpsc::Sender<Box<dyn Job>>,
    head: watch::Receiver<i64>,
}

impl Appender {
    /// Starts the task; it ends when `stop` is cancelled and all that waits is answered.
    pub fn start(config: Config, stop: CancellationToken, tasks: &TaskTracker) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (told, head) = watch::channel(0);
        if let Some(nats_url) = config.nats_url.clone() {
            tasks.spawn(ring(nats_url, head.clone(), stop.clone()));
        }
        tasks.spawn(run(Writer::new(config, told), jobs, stop));
        Self { queue, head }
    }

    /// Has `command` decided and its facts appended; the answer comes when they are durable.
    ///
    /// Dropping the future does not take the command back.
    pub async fn submit<C: Command>(&self, command: C) -> Result<C::Outcome, Error> {
        let (reply, answer) = oneshot::channel();
        self.answered(Ticket::boxed(command, reply), answer).await
    }

    /// Queues `job` and waits for its answer.
    async fn answered<T>(
        &self,
        job: Box<dyn Job>,
        answer: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        let unavailable = || Error::Unavailable("the appender has stopped".to_owned());
        self.queue.send(job).await.map_err(|_| unavailable())?;
        answer.await.map_err(|_| unavailable())?
    }

    /// The newest position that this appender has seen.
    pub fn head(&self) -> i64 {
        *self.head.borrow()
    }
}

/// Ends the process when the only writer panics: what is left would answer 503 for ever and seem alive to others.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the appender panicked: this process ends");
            std::process::abort();
        }
    }
}

async fn run(mut writer: Writer, mut jobs: mpsc::Receiver<Box<dyn Job>>, stop: CancellationToken) {
    let _guard = AbortOnPanic;
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
        writer.append(std::mem::take(&mut batch), &mut jobs, &stop).await;
    }
    jobs.close();
    while let Ok(job) = jobs.try_recv() {
        job.fail("the appender is stopping");
    }
}

/// Tells readers that there is something to read; a lost ring costs them at most their polling interval.
async fn ring(nats_url: String, mut head: watch::Receiver<i64>, stop: CancellationToken) {
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let Ok(nats) = options.connect(nats_url).await else { return };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = head.changed() => if changed.is_err() { return },
        }
        let position = head.borrow_and_update().to_string();
        if nats.connection_state() == async_nats::connection::State::Connected {
            // A failure here means only that readers poll.
            let _ = nats.publish(DOORBELL, position.into()).await;
        }
        tokio::time::sleep(DOORBELL_PAUSE).await;
    }
}
