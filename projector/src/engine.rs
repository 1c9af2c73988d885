//! The projection engine. Live projection, catch-up and rebuild share one path. Invariant: a batch of rows and its
//! checkpoint are one transaction, fenced by the position where the batch starts in each partition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Object, Transaction};
use farthing_core::event::Recorded;
use farthing_core::partition::Partition;
use farthing_log::backoff::Backoff;
use farthing_log::connect::{SessionsError, redacted};
use farthing_log::connection_budget;
use farthing_log::leadership::{Held, Locks};
use farthing_log::positions::Positions;
use farthing_log::reader::{self, Entry};
use farthing_log::tail::{Follower, Pace, Page, Tail};
use farthing_schema::citus;
use farthing_schema::read_model::ReadModel;
use futures_util::future::join;
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::checkpoint::{self, Advance};
use crate::idle_spans::IdleSpans;
use crate::metrics::Progress;
use crate::schemas::{Schemas, set_built, unbuilt, writer_lock};
use crate::writer::{Statements, WriteRows, Writer};
use crate::writers::{Writers, close_failed};

/// The largest number of events in one transaction.
pub(crate) const MAX_EVENTS: usize = 5_000;
/// The events of a transaction after several that were not answered in time.
const FEWEST_EVENTS: usize = 32;
/// The rows that a transaction may have for each of its events. With more, it ends earlier: an event has as many rows as its
/// merchant wanted.
const ROWS_PER_EVENT: usize = 10;
/// How long a checkpoint may lag behind events that change no row of its read model. Readers do not wait for it, but for
/// the idle span. After a restart these events are read again.
const IDLE_CHECKPOINT: Duration = Duration::from_secs(1);
/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The wait after an event that cannot be read, which needs another version of the program.
const UNREADABLE_RETRY: Duration = Duration::from_mins(1);

/// A generation counts as built once it is fewer than this many events behind the log.
const MAX_BEHIND: i64 = 2_000;

/// Why a projection stops.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer, or returns an error.
    #[error("the database failed: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
    /// Postgres does not answer, and its connection stays open.
    #[error("the database did not answer in time")]
    Unanswered,
    /// Its connections do not fit into the server.
    #[error(transparent)]
    Connections(#[from] connection_budget::Error),
    /// A pooler shares its sessions.
    #[error(transparent)]
    Sessions(#[from] SessionsError),
    /// There is no pool of connections.
    #[error("no connection: {0}")]
    NoConnection(String),
    /// The lock was lost with its connection.
    #[error("the lock of the projection was lost")]
    LockLost,
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] reader::Error),
    /// The tables of a new generation cannot be created.
    #[error("the tables cannot be created: {0}")]
    Tables(#[from] citus::Error),
    /// This program cannot read an event.
    #[error("the event at position {position} of partition {partition} cannot be read: {reason}")]
    Unreadable {
        /// Its partition.
        partition: Partition,
        /// Its position.
        position: i64,
        /// The reason.
        reason: String,
    },
    /// The log ends before a position that was shown: events were removed from its end.
    #[error("partition {partition} of the log ends at position {position}, before {target}, which was shown")]
    LogEnds {
        /// The partition.
        partition: Partition,
        /// The position of its last event.
        position: i64,
        /// The position that was shown.
        target: i64,
    },
    /// A webhook in the outbox cannot be read.
    #[error("a webhook in the outbox cannot be read: {0}")]
    Webhook(String),
    /// Another projector has moved the checkpoint.
    #[error("another projector moved the checkpoint")]
    Fenced,
    /// The read model has no tables: the database is not migrated.
    #[error("the read model {0} has no tables: run `farthing migrate`")]
    NotMigrated(&'static str),
    /// The read model has tables of other versions of the program only.
    #[error("the read model {0} has no generation of this version of the program: run `farthing migrate`")]
    Outdated(&'static str),
    /// The generation of this version of the program has not caught up with the log yet.
    #[error("the read model {0} is not built yet: a projector of this release builds it")]
    Unbuilt(&'static str),
    /// There is no read model of this name.
    #[error("there is no read model {0:?}")]
    NoSuchModel(String),
    /// Another rebuild, verification or audit of the read model is running.
    #[error("another rebuild, verification or audit of {0} is running")]
    RebuildRunning(&'static str),
}

impl Error {
    /// Whether a log that was tampered with causes the error, rather than the database.
    pub fn is_of_the_events(&self) -> bool {
        match self {
            Self::Log(error) => error.is_of_the_events(),
            Self::Unreadable { .. } | Self::LogEnds { .. } => true,
            // Values that do not fit, and rows that violate a constraint.
            Self::Database(error) => error
                .code()
                .is_some_and(|code| ["22", "23"].iter().any(|class| code.code().starts_with(class))),
            Self::Unanswered
            | Self::Connections(_)
            | Self::Sessions(_)
            | Self::NoConnection(_)
            | Self::LockLost
            | Self::Tables(_)
            | Self::Webhook(_)
            | Self::Fenced
            | Self::NotMigrated(_)
            | Self::Outdated(_)
            | Self::Unbuilt(_)
            | Self::NoSuchModel(_)
            | Self::RebuildRunning(_) => false,
        }
    }
}

impl Error {
    /// The error about an event that this program cannot read.
    pub(crate) fn unreadable(entry: &Entry, reason: &impl ToString) -> Self {
        let (partition, position) = (entry.partition(), entry.position());
        Self::Unreadable { partition, position, reason: reason.to_string() }
    }
}

/// A read model's fold. The value is a batch of row changes of one partition, made of events only.
pub(crate) trait Projection: WriteRows + Default + Send + Sync + 'static {
    /// The read model that it writes.
    const MODEL: ReadModel;

    /// Folds one event. Events come in the order of their partition.
    fn fold(&mut self, recorded: &Recorded);

    /// Whether the batch changes no row.
    fn is_empty(&self) -> bool;

    /// The rows of the batch, where an event may have many.
    fn rows(&self) -> usize {
        0
    }

    /// Events of the batch that are shown although something is wrong with them.
    fn doubtful(&self) -> Option<Doubtful> {
        None
    }
}

/// Events whose amounts do not add up. One of them must not stop a read model for all merchants, so it is shown as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doubtful {
    /// How many there are.
    pub(crate) events: u64,
    /// The position of the first.
    pub(crate) first_position: i64,
}

/// What a projection works with, and how far it has come.
pub(crate) struct Source {
    pub(crate) locks: Arc<Locks>,
    pub(crate) writers: Writers,
    pub(crate) tail: Tail,
    pub(crate) progress: Arc<Progress>,
}

/// Projects until the process ends. Restarts after every failure.
pub(crate) async fn project<P: Projection>(source: &Source, idle_spans: &IdleSpans) {
    let model = P::MODEL.name();
    let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
    let mut max_events = MAX_EVENTS;
    loop {
        let started = Instant::now();
        let Err(error) = follow::<P>(source, idle_spans, &mut max_events).await;
        if matches!(error, Error::Unanswered) {
            max_events = FEWEST_EVENTS.max(max_events / 4);
        }
        let is_held_up =
            matches!(&error, Error::Database(source) if source.code() == Some(&SqlState::LOCK_NOT_AVAILABLE));
        if is_held_up {
            tracing::info!(event = "projection.held_up", model, "a lock on the read model holds it up");
            tokio::time::sleep(BACKOFF.0).await;
            continue;
        }
        source.progress.failed();
        let mut delay = backoff.next_delay_after(started.elapsed());
        match &error {
            Error::Unreadable { .. } | Error::Log(reader::Error::Gap { .. }) => {
                tracing::error!(event = "projection.stopped", model, %error, "the projection cannot continue");
                delay = UNREADABLE_RETRY;
            }
            Error::Database(source) if source.as_db_error().is_some() => {
                tracing::error!(event = "projection.restarted", model, %error, "the projection starts again");
            }
            Error::Database(_)
            | Error::Unanswered
            | Error::Log(_)
            | Error::Tables(_)
            | Error::Connections(_)
            | Error::Sessions(_)
            | Error::NoConnection(_)
            | Error::LockLost
            | Error::LogEnds { .. }
            | Error::Webhook(_)
            | Error::Fenced
            | Error::NotMigrated(_)
            | Error::Outdated(_)
            | Error::Unbuilt(_)
            | Error::NoSuchModel(_)
            | Error::RebuildRunning(_) => {
                tracing::warn!(event = "projection.restarted", model, %error, "the projection starts again");
            }
        }
        tokio::time::sleep(delay).await;
    }
}

/// Projects until a failure. A transaction has at most `max_events`, which grows back with each that is answered.
async fn follow<P: Projection>(
    Source { locks, writers, tail, progress }: &Source,
    idle_spans: &IdleSpans,
    max_events: &mut usize,
) -> Result<std::convert::Infallible, Error> {
    let schemas = Schemas::load(&*locks.client().await?).await?;
    let (schema, version) = schemas.generation(P::MODEL);
    let lock = locks.wait(&writer_lock(schema), || progress.stands_by()).await?;
    // Under the lock: `farthing migrate` changes it only while no projector has the lock.
    let mut is_built = !unbuilt(lock.client()).await?.contains(&P::MODEL);
    let mut generation = Generation::open(writers.clone(), P::MODEL, schema).await?;
    let follower = tail.follow(Pace::Together);
    idle_spans.forget(P::MODEL, version);
    if !is_built {
        is_built = is_caught_up::<P>(lock.client(), &generation.positions).await?;
    }
    // Events up to these positions are folded. Those after the checkpoint have changed no row.
    let mut seen = generation.positions.clone();
    let mut written_at = Instant::now();
    loop {
        progress.built(is_built);
        progress.reached(&seen);
        let deadline = (seen != generation.positions).then(|| written_at + IDLE_CHECKPOINT);
        let Some(page) = next_page(&lock, &follower, &seen, *max_events, deadline).await? else {
            generation.write::<P>(&[], &seen).await?;
            written_at = Instant::now();
            continue;
        };
        let Folded { batches, events, ends, stopped } = fold::<P>(page.runs(), *max_events, &mut seen);
        progress.folded(events);
        if events < page.len() {
            for end in ends {
                follower.stopped_at(end);
            }
        }
        if stopped.is_some() || !batches.is_empty() || written_at.elapsed() > IDLE_CHECKPOINT {
            // Before they are written: what is projected again is reported again, and none is left out.
            raise_alarms(&batches, progress);
            generation.write(&batches, &seen).await?;
            *max_events = MAX_EVENTS.min(*max_events * 2);
            written_at = Instant::now();
        } else {
            idle_spans.add(P::MODEL, version, &generation.positions, &seen);
        }
        if let Some(error) = stopped {
            return Err(error);
        }
        if !is_built {
            is_built = is_caught_up::<P>(lock.client(), &seen).await?;
        }
    }
}

/// The next page after the positions `seen`; `None` if there is none until `deadline`. Fails when the lock is lost: another
/// process may work on the same, and after a failover of Postgres the log may end before `seen`, so that no page would come.
pub(crate) async fn next_page(
    lock: &Held,
    follower: &Follower,
    seen: &Positions,
    max: usize,
    deadline: Option<Instant>,
) -> Result<Option<Page>, Error> {
    // In a box: the future of a page would make the one of every projection as large.
    let next = Box::pin(lock.while_held(follower.next(seen, max)));
    let page = match deadline {
        None => next.await,
        Some(deadline) => match tokio::time::timeout_at(deadline, next).await {
            Ok(page) => page,
            Err(_) => return Ok(None),
        },
    };
    let page = page.filter(|_| !lock.is_lost()).ok_or(Error::LockLost)??;
    Ok(Some(page))
}

/// What was folded.
pub(crate) struct Folded<'e, P> {
    /// The batches of the partitions with changes.
    pub(crate) batches: Vec<(Partition, P)>,
    /// The number of events that were folded.
    pub(crate) events: usize,
    /// The last event of each run that was folded.
    ends: Vec<&'e Entry>,
    /// The error that stopped it.
    pub(crate) stopped: Option<Error>,
}

/// Folds `runs`, which follow the positions `seen`, and moves the positions: up to the last event, to a record batch with
/// one that cannot be read, or to the one with which there are too many rows for a transaction of `max_events`. A run is
/// consecutive record batches of a partition, none of them divided: what an append records together is folded together.
pub(crate) fn fold<'e, P: Projection>(
    runs: impl Iterator<Item = &'e [Entry]>,
    max_events: usize,
    seen: &mut Positions,
) -> Folded<'e, P> {
    let (mut batches, mut stopped): (BTreeMap<Partition, P>, _) = (BTreeMap::new(), None);
    let (mut events, mut ends, mut rows_left) = (0, Vec::new(), max_events.saturating_mul(ROWS_PER_EVENT));
    for run in runs {
        let Some(partition) = run.first().map(Entry::partition) else { continue };
        if rows_left == 0 {
            break;
        }
        let batch = batches.entry(partition).or_default();
        let mut reached = None;
        let rows_before = batch.rows();
        for append in run.split_inclusive(Entry::ends_batch) {
            if batch.rows() - rows_before >= rows_left {
                break;
            }
            let unreadable = append.iter().find_map(|entry| Some((entry, entry.recorded().err()?)));
            if let Some((entry, reason)) = unreadable {
                stopped = Some(Error::unreadable(entry, reason));
                break;
            }
            for recorded in append.iter().filter_map(|entry| entry.recorded().ok()) {
                batch.fold(recorded);
            }
            events += append.len();
            reached = append.last();
        }
        rows_left = rows_left.saturating_sub(batch.rows() - rows_before);
        if let Some(end) = reached {
            seen.set(partition, end.position());
            ends.push(end);
        }
        if stopped.is_some() {
            break;
        }
    }
    let batches = batches.into_iter().filter(|(_, batch)| !batch.is_empty()).collect();
    Folded { batches, events, ends, stopped }
}

/// Reports the doubtful events of batches.
fn raise_alarms<P: Projection>(batches: &[(Partition, P)], progress: &Progress) {
    for (partition, batch) in batches {
        let Some(Doubtful { events, first_position }) = batch.doubtful() else { continue };
        progress.doubted(events);
        tracing::error!(
            event = "projection.doubtful", model = P::MODEL.name(), %partition, first_position, events,
            "the amounts of events do not add up: find them with `farthing audit trial-balance`"
        );
    }
}

/// Marks the generation of this program as built once it is near the heads of the log. Returns whether it is.
async fn is_caught_up<P: Projection>(client: &Client, seen: &Positions) -> Result<bool, Error> {
    if reader::heads(client).await?.events_after(seen) >= MAX_BEHIND {
        return Ok(false);
    }
    set_built(client, P::MODEL).await?;
    tracing::info!(event = "projection.built", model = P::MODEL.name(), "a new generation is built");
    Ok(true)
}

/// One generation of a read model, open for writing.
pub(crate) struct Generation {
    writers: Writers,
    /// The positions of its checkpoint.
    pub(crate) positions: Positions,
    statements: Statements,
}

impl Generation {
    /// Opens the generation in `schema`, with all partitions of the log.
    pub(crate) async fn open(writers: Writers, model: ReadModel, schema: &str) -> Result<Self, Error> {
        let statements = Statements::new(schema);
        let client = writers.connection().await?;
        client.execute(&statements.sql(checkpoint::ADD_PARTITIONS), &[]).await.map_err(|error| {
            let missing = error.code() == Some(&SqlState::UNDEFINED_TABLE);
            if missing { Error::NotMigrated(model.name()) } else { error.into() }
        })?;
        let rows = client.query(&statements.sql(checkpoint::SELECT), &[]).await?;
        if rows.is_empty() {
            return Err(Error::NotMigrated(model.name()));
        }
        Ok(Self { writers, positions: Positions::from_rows(&rows)?, statements })
    }

    /// Writes batches and moves the checkpoint to the positions `to`, in one transaction.
    pub(crate) async fn write<P: Projection>(
        &mut self,
        batches: &[(Partition, P)],
        to: &Positions,
    ) -> Result<(), Error> {
        let mut client = self.writers.connection().await?;
        let advance = Advance::new(&self.positions, to);
        let written = self.writers.answered(write_on(&mut client, &self.statements, batches, &advance)).await;
        close_failed(client, written)?;
        self.positions.clone_from(to);
        Ok(())
    }
}

async fn write_on<P: Projection>(
    client: &mut Object,
    statements: &Statements,
    batches: &[(Partition, P)],
    advance: &Advance,
) -> Result<(), Error> {
    if batches.is_empty() {
        // One statement is a transaction of its own, in one round trip.
        let statement = client.prepare_cached(&statements.text(checkpoint::ADVANCE)).await?;
        let Advance { partitions, before, after } = advance;
        let moved = client.execute(&statement, &[partitions, before, after]).await?;
        return if advance.is_done_by(moved) { Ok(()) } else { Err(Error::Fenced) };
    }
    let transaction = client.transaction().await?;
    write_batches(&transaction, statements, batches, advance).await?;
    Ok(transaction.commit().await?)
}

/// Moves the checkpoint of every partition, which fences out another writer, and then writes the rows. Both are sent together:
/// what follows a move that another writer was ahead of is rolled back.
async fn write_batches<P: Projection>(
    transaction: &Transaction<'_>,
    statements: &Statements,
    batches: &[(Partition, P)],
    advance: &Advance,
) -> Result<(), Error> {
    let writer = Writer::new(transaction, statements);
    let Advance { partitions, before, after } = advance;
    writer.prepare([checkpoint::ADVANCE]).await?;
    let (moved, written) = join(
        writer.execute(checkpoint::ADVANCE, &[partitions, before, after]),
        Box::pin(P::write_rows(batches, &writer)),
    )
    .await;
    if !advance.is_done_by(moved?) {
        return Err(Error::Fenced);
    }
    written?;
    Ok(())
}
