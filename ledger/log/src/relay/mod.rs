//! The relay publishes the log to JetStream, the public feed: each partition in order and without a gap, to its stream
//! (`nats_names`). A message carries whole record batches. One relay at a time publishes all partitions.
//!
//! JetStream counts as lossy: the relay resumes after the last event that the stream holds, and republishes
//! from the first event when the stream is gone. Invariant: while the relay works, a stream holds exactly
//! the events of its partition from the first on, each once. A stream that breaks this is deleted and created again.

mod answer;
mod feed;
mod message;
mod metrics;
mod stream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, jetstream};
use farthing_core::partition::Partition;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::feed::Feed;
pub use self::message::{BATCHES_HEADER, COUNT_HEADER, HASHES_HEADER, NUMBER_HEADER, POSITION_HEADER};
pub use self::metrics::RelayMetrics;
use super::backoff::Backoff;
use super::connect::{self, Role, redacted};
use super::leadership::{Held, Locks};
use super::nats::NatsConfig;
use super::nats_names::NatsNames;
use super::tail::{Follower, Pace, Tail};
use super::{partitions, reader};

/// The name of the lock that the publishing relay holds.
const LOCK: &str = "farthing.relay";

/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why publishing stopped; the relay restarts on its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer.
    #[error("the database is out of reach: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] reader::Error),
    /// NATS does not answer, or has no JetStream.
    #[error("NATS: {0}")]
    Nats(String),
    /// The stream did not take a message.
    #[error("the stream refused a message: {0}")]
    Refused(String),
    /// JetStream answers that the stream cannot be created, read or deleted.
    #[error("JetStream refuses the stream: {0}")]
    RefusedStream(String),
    /// The stream is not as the relay left it.
    #[error("{0}")]
    Changed(&'static str),
    /// No acknowledgement came in time.
    #[error("the stream does not acknowledge")]
    AckTimeout,
    /// The stream holds the events of another log: an operator must decide which one is right.
    #[error("the stream's last event, at position {position}, is not this log's: the feed has forked")]
    Forked {
        /// The position in the stream's last message.
        position: i64,
    },
    /// The database has no usable number of partitions.
    #[error("the log has no partitions: run `farthing migrate`")]
    NoPartitions,
    /// The lock was lost with its connection.
    #[error("the relay's lock was lost")]
    LockLost,
}

fn nats(error: impl std::fmt::Display) -> Error {
    Error::Nats(error.to_string())
}

/// The settings of a relay.
#[derive(Debug, Clone)]
pub struct RelayConfig {
    /// The locks of the process. The relay reads the log's end over their connection.
    pub locks: Arc<Locks>,
    /// The NATS servers.
    pub nats: NatsConfig,
    /// The number of servers that store the stream.
    pub replicas: usize,
}

/// Starts a relay. It waits while another relay publishes.
pub fn start(
    config: RelayConfig,
    tail: &Tail,
    metrics: RelayMetrics,
    stop: CancellationToken,
    tasks: &TaskTracker,
) {
    let tail = tail.clone();
    // A separate thread with its own runtime: passing each message to a client on another thread would cost more than
    // all other work.
    tasks.spawn_blocking(move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = runtime.block_on(stop.run_until_cancelled(run(&config, &tail, &metrics)));
        }
        Err(error) => {
            tracing::error!(event = "relay.thread_failed", %error, "the relay cannot start its thread");
        }
    });
}

/// The position up to which the feed at `nats` has each partition of the log.
pub async fn published(database_url: &str, config: &NatsConfig) -> Result<BTreeMap<Partition, i64>, Error> {
    let db = connect::connect(database_url, Role::Owner).await?;
    let partitions = partitions::load(&db).await?.ok_or(Error::NoPartitions)?;
    let client = config.connect(|options| options.name("farthing archive")).await.map_err(nats)?;
    let context = jetstream::new(client);
    let mut published = BTreeMap::new();
    for partition in partitions.all() {
        published.insert(partition, feed::published(&context, &config.names, partition).await?);
    }
    Ok(published)
}

async fn run(config: &RelayConfig, tail: &Tail, metrics: &RelayMetrics) {
    let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
    loop {
        let started = Instant::now();
        let Err(error) = lead(config, tail, metrics).await;
        metrics.restarts.inc();
        tracing::warn!(event = "relay.restarted", %error, "the relay restarts");
        tokio::time::sleep(backoff.next_delay_after(started.elapsed())).await;
    }
}

/// Publishes all partitions until the lock is lost, or Postgres or NATS fail.
async fn lead(
    config: &RelayConfig,
    tail: &Tail,
    metrics: &RelayMetrics,
) -> Result<std::convert::Infallible, Error> {
    let lock = config.locks.wait(LOCK, || metrics.stands_by()).await?;
    let partitions = partitions::load(lock.client()).await?.ok_or(Error::NoPartitions)?;
    // The client's own way of waiting for a server says nothing of why it is refused.
    let connecting =
        config.nats.connect(|options| options.name("farthing relay").skip_subject_validation(true));
    let client = connecting.await.map_err(nats)?;
    let relay = Relay {
        lock,
        client,
        names: config.nats.names.clone(),
        replicas: config.replicas,
        follower: tail.follow(Pace::Apart),
        metrics,
    };
    let mut ended = try_join_all(partitions.all().map(|partition| relay.publish(partition))).await?;
    ended.pop().ok_or(Error::NoPartitions)
}

/// The relay that holds the lock.
struct Relay<'a> {
    lock: Held,
    client: Client,
    names: NatsNames,
    replicas: usize,
    follower: Follower,
    metrics: &'a RelayMetrics,
}

impl Relay<'_> {
    /// Publishes a partition until the lock is lost, or Postgres or NATS fail: then another process may lead. A failure
    /// of the partition's own stream stops no other partition, and the stream is opened again.
    async fn publish(&self, partition: Partition) -> Result<std::convert::Infallible, Error> {
        let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
        loop {
            let started = Instant::now();
            let Err(error) = self.publish_feed(partition).await;
            // No feed can be opened again over the connection that has ended.
            if self.lock.is_lost() {
                return Err(Error::LockLost);
            }
            match error {
                Error::Forked { .. } => {
                    let event = "relay.forked";
                    tracing::error!(event, %partition, %error, "the feed of a partition is halted");
                }
                Error::Log(_) | Error::Refused(_) | Error::RefusedStream(_) | Error::Changed(_) => {
                    let event = "relay.restarted";
                    tracing::warn!(event, %partition, %error, "the feed of a partition restarts");
                }
                Error::Database(_)
                | Error::Nats(_)
                | Error::AckTimeout
                | Error::NoPartitions
                | Error::LockLost => return Err(error),
            }
            self.metrics.restarts.inc();
            tokio::time::sleep(backoff.next_delay_after(started.elapsed())).await;
        }
    }

    /// Publishes a partition until something fails.
    async fn publish_feed(&self, partition: Partition) -> Result<std::convert::Infallible, Error> {
        let db = self.lock.client();
        let client = self.client.clone();
        let mut feed =
            Feed::resume(client, (db, &self.follower), &self.names, partition, self.replicas).await?;
        let (sender, mut news) = mpsc::channel(1);
        let position = feed.position();
        let publish = async {
            loop {
                self.metrics.published(partition, feed.acknowledged());
                if self.lock.is_lost() {
                    return Err(Error::LockLost);
                }
                feed.step(&mut news).await?;
            }
        };
        tokio::select! {
            ended = feed::read(&self.follower, partition, position, &sender) => ended,
            ended = publish => ended,
        }
    }
}
