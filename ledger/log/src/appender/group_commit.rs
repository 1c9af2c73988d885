//! Group commit over partitions: what the leaders of one process append while one transaction commits goes into the next
//! one, with one flush of the log's disk for all of them.
//!
//! Invariant: each append succeeds or fails as if it were alone. If one fails, the transaction is rolled back, and each is
//! executed in a transaction of its own. What is not known to be rolled back is in doubt, and its leader looks it up.
//! Batches of events alone are one statement, which needs no other one to begin or commit it.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::error::Severity;
use tokio_postgres::{Client, Error, Statement};
use tokio_util::task::TaskTracker;

use super::append_statement::{APPEND, APPEND_EVENTS, append_events, execute, try_execute};
use super::batch::AppendBatch;
use super::session::set_up;
use super::store::{ATTEMPT_TIMEOUT, Head, StoreError, StoreResult};
use crate::abort_on_panic::AbortOnPanic;
use crate::connect::{self, Role};
use crate::metrics::LedgerMetrics;
use farthing_core::partition::Partition;

/// The most appends in a transaction. Up to so many futures are polled in their order when they are joined, so that the
/// statements are sent in theirs.
const MAX_GROUP: usize = 30;

/// The most bytes of the batches in a transaction of several. The others wait for it.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The most bytes of batches that are appended by one statement, which keeps their lines in the memory of Postgres.
const MAX_STATEMENT_BYTES: usize = 2 * 1024 * 1024;

/// A transaction that waits for a head, or for this process, keeps the other heads locked meanwhile: no longer than this for
/// each head, and than an attempt in all. An append that waits for its head is then executed alone.
const BEGIN: &str = "\
BEGIN;
SET LOCAL lock_timeout = '500ms';
SET LOCAL idle_in_transaction_session_timeout = '1s'";

/// A handle to the task that commits for all partitions of this process. The task ends with the last handle.
#[derive(Debug, Clone)]
pub struct GroupCommit {
    // Each leader waits for its append, so there are at most as many as partitions.
    queue: mpsc::UnboundedSender<Append>,
}

/// A batch to append, and its leader.
#[derive(Debug)]
struct Append {
    partition: Partition,
    expected: Head,
    batch: Arc<AppendBatch>,
    reply: oneshot::Sender<StoreResult<bool>>,
}

impl GroupCommit {
    /// Starts the task, which connects when there is something to append.
    pub fn start(database_url: String, role: Role, metrics: Arc<LedgerMetrics>, tasks: &TaskTracker) -> Self {
        let (queue, appends) = mpsc::unbounded_channel();
        tasks.spawn(async move {
            let _guard = AbortOnPanic("the group commit");
            run(database_url, role, &metrics, appends).await;
        });
        Self { queue }
    }

    /// Appends `batch` if the head of `partition` is still `expected`. Returns whether it was.
    ///
    /// Dropping the future withdraws the batch only if its transaction has not begun.
    pub(super) async fn append(
        &self,
        partition: Partition,
        expected: Head,
        batch: Arc<AppendBatch>,
    ) -> StoreResult<bool> {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError::Other("the group commit has ended".to_owned());
        self.queue.send(Append { partition, expected, batch, reply }).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

async fn run(
    database_url: String,
    role: Role,
    metrics: &LedgerMetrics,
    mut appends: mpsc::UnboundedReceiver<Append>,
) {
    let (mut connection, mut waiting) = (None, VecDeque::new());
    loop {
        if waiting.is_empty() {
            let Some(first) = appends.recv().await else { return };
            waiting.push_back(first);
        }
        // Leaders that are ready to append are in the same transaction.
        tokio::task::yield_now().await;
        while let Ok(next) = appends.try_recv() {
            waiting.push_back(next);
        }
        // A leader that has given up looks its batch up, which is then not in the log.
        waiting.retain(|append: &Append| !append.reply.is_closed());
        let mut group = take_group(&mut waiting);
        // Heads are locked in one order, but that those with events alone come first. A deadlock is an error of a statement.
        group.sort_unstable_by_key(|append| append.partition);
        // It may have been lost since the last commit.
        let open = match connection.take().filter(|open: &Connection| !open.client.is_closed()) {
            Some(open) => Ok(open),
            None => Connection::open(&database_url, role).await,
        };
        match open {
            Ok(open) => {
                if tokio::time::timeout(ATTEMPT_TIMEOUT, open.commit(&mut group, metrics)).await.is_ok() {
                    connection = Some(open);
                }
            }
            Err(error) => {
                let why = error.to_string();
                end_all(group.drain(..), &why);
            }
        }
        // Those of a transaction that takes too long.
        end_all(group.drain(..), "Postgres does not answer");
    }
}

/// Takes the appends of the next transaction from those that wait, which are in the order of their arrival.
/// The oldest comes first, so that each has its turn; then come the smallest, ahead of large ones.
fn take_group(waiting: &mut VecDeque<Append>) -> Vec<Append> {
    let mut group: Vec<Append> = waiting.pop_front().into_iter().collect();
    let mut bytes: usize = group.iter().map(|append| append.batch.bytes()).sum();
    while group.len() < MAX_GROUP
        && let Some(smallest) = (0..waiting.len()).min_by_key(|at| waiting[*at].batch.bytes())
    {
        bytes += waiting[smallest].batch.bytes();
        if bytes > MAX_GROUP_BYTES {
            break;
        }
        group.extend(waiting.remove(smallest));
    }
    group
}

/// Brings the batches that one statement appends to the front of `group`, in their order, and returns their number. One alone
/// is appended like any other.
fn events_at_once(group: &mut Vec<Append>) -> usize {
    let mut bytes = 0;
    let is_first = |append: &Append| {
        let fits = append.batch.is_events_alone() && bytes + append.batch.bytes() <= MAX_STATEMENT_BYTES;
        bytes += if fits { append.batch.bytes() } else { 0 };
        fits
    };
    let are_first: Vec<bool> = group.iter().map(is_first).collect();
    let count = are_first.iter().filter(|is_first| **is_first).count();
    if count < 2 {
        return 0;
    }
    let (first, others): (Vec<_>, Vec<_>) =
        group.drain(..).zip(are_first).partition(|(_, is_first)| *is_first);
    group.extend(first.into_iter().chain(others).map(|(append, _)| append));
    count
}

/// Answers that it is not known whether these are appended.
fn end_all(appends: impl Iterator<Item = Append>, why: &str) {
    for append in appends {
        // The leader may have given up.
        let _ = append.reply.send(Err(StoreError::Other(why.to_owned())));
    }
}

/// A connection with the statements.
struct Connection {
    client: Client,
    append: Statement,
    append_events: Statement,
}

/// The end of a transaction for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Together {
    /// Each append is answered: all are committed, or it is not known.
    Answered,
    /// It was rolled back because the one that is now the last failed. None is answered.
    LastFailed,
    /// It was rolled back because one of those that a statement appends at once failed. None is answered.
    SomeFailed,
}

impl Connection {
    async fn open(database_url: &str, role: Role) -> StoreResult<Self> {
        let opened = async {
            let client = connect::connect(database_url, role).await?;
            set_up(&client).await?;
            let append = client.prepare(APPEND).await?;
            let append_events = client.prepare(APPEND_EVENTS).await?;
            Ok(Self { client, append, append_events })
        };
        let timeout = || StoreError::Other("Postgres does not answer".to_owned());
        tokio::time::timeout(ATTEMPT_TIMEOUT, opened).await.map_err(|_| timeout())?
    }

    /// Commits the appends of `group` and answers them. Those that remain in it are not answered.
    async fn commit(&self, group: &mut Vec<Append>, metrics: &LedgerMetrics) {
        let mut was_tried = false;
        if group.len() > 1 {
            let at_once = events_at_once(group);
            let mut together = if at_once == group.len() {
                self.commit_events(group, metrics).await
            } else {
                self.commit_together(group, metrics, at_once, was_tried).await
            };
            if together == Together::SomeFailed {
                group.sort_unstable_by_key(|append| append.partition);
                // By a statement for each, which tells which one failed.
                was_tried = true;
                together = self.commit_together(group, metrics, 0, was_tried).await;
            }
            if together == Together::Answered {
                return;
            }
            was_tried = true;
        }
        while let Some(Append { partition, expected, batch, .. }) = group.first() {
            let started = Instant::now();
            let appended = execute(&self.client, &self.append, *partition, *expected, batch).await;
            let appended = unless_moved_meanwhile(appended, was_tried);
            count_commit(metrics, started, usize::from(matches!(appended, Ok(true))));
            let _ = group.remove(0).reply.send(appended);
        }
    }

    /// Commits all appends of `group`, which are of events alone, by one statement and answers them, or none of them.
    async fn commit_events(&self, group: &mut Vec<Append>, metrics: &LedgerMetrics) -> Together {
        let started = Instant::now();
        match append_events(&self.client, &self.append_events, &batches(group)).await {
            Ok(appended) => {
                answer_all(group, appended.into_iter().map(Ok), false, started, metrics);
                Together::Answered
            }
            Err(error) if is_rolled_back(&error) => Together::SomeFailed,
            Err(error) => {
                end_all(group.drain(..), &StoreError::from(error).to_string());
                Together::Answered
            }
        }
    }

    /// Commits all appends of `group` in one transaction and answers them, or none of them. So many first ones are of events
    /// alone, and are appended by one statement. Whether all of them were tried before says `was_tried`.
    async fn commit_together(
        &self,
        group: &mut Vec<Append>,
        metrics: &LedgerMetrics,
        first_count: usize,
        was_tried: bool,
    ) -> Together {
        let started = Instant::now();
        let (first, others) = group.split_at(first_count);
        let first = batches(first);
        let at_once = async {
            match first.as_slice() {
                [] => Ok(Vec::new()),
                batches => append_events(&self.client, &self.append_events, batches).await,
            }
        };
        let one_by_one = others.iter().map(|Append { partition, expected, batch, .. }| {
            try_execute(&self.client, &self.append, *partition, *expected, batch)
        });
        // The statements are sent in this order, without a wait for the replies.
        let (begun, at_once, appended, committed) = tokio::join!(
            biased;
            self.client.batch_execute(BEGIN),
            at_once,
            join_all(one_by_one),
            self.client.batch_execute("COMMIT"),
        );
        let (at_once, failure) = match at_once {
            Ok(at_once) => (at_once, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        match begun.and(committed) {
            Ok(()) if failure.is_none() && appended.iter().all(Result::is_ok) => {
                answer_all(group, at_once.into_iter().map(Ok).chain(appended), was_tried, started, metrics);
                Together::Answered
            }
            // After an error in the transaction, Postgres rolls back when it is told to commit.
            Ok(()) if failure.as_ref().is_some_and(is_of_statement) => Together::SomeFailed,
            Ok(()) => {
                let failed =
                    appended.iter().position(|appended| appended.as_ref().is_err_and(is_of_statement));
                if let Some(failed) = failed {
                    let failed = group.remove(first_count + failed);
                    group.push(failed);
                    return Together::LastFailed;
                }
                end_all(group.drain(..), "a reply of Postgres cannot be read");
                Together::Answered
            }
            Err(error) => {
                end_all(group.drain(..), &StoreError::from(error).to_string());
                Together::Answered
            }
        }
    }
}

/// The batches of `group`, as the statement takes them that appends events.
fn batches(group: &[Append]) -> Vec<(Partition, Head, &AppendBatch)> {
    group.iter().map(|append| (append.partition, append.expected, &*append.batch)).collect()
}

/// The answer to an append. One that was tried before and is not at its head now may have been appended then: its leader looks up
/// which it is.
fn unless_moved_meanwhile(appended: StoreResult<bool>, was_tried: bool) -> StoreResult<bool> {
    match appended {
        Ok(false) if was_tried => Err(StoreError::Other("the head has moved meanwhile".to_owned())),
        appended => appended,
    }
}

/// Counts the transaction since `started` that has committed `group`, and answers whether each was appended.
fn answer_all(
    group: &mut Vec<Append>,
    appended: impl Iterator<Item = Result<bool, Error>>,
    was_tried: bool,
    started: Instant,
    metrics: &LedgerMetrics,
) {
    let appended: Vec<_> = appended.collect();
    let count = appended.iter().filter(|appended| matches!(appended, Ok(true))).count();
    count_commit(metrics, started, count);
    for (append, appended) in group.drain(..).zip(appended) {
        let _ = append.reply.send(unless_moved_meanwhile(appended.map_err(StoreError::from), was_tried));
    }
}

/// Counts a transaction since `started` that has committed so many batches, if it has committed any.
fn count_commit(metrics: &LedgerMetrics, started: Instant, batches: usize) {
    if batches > 0 {
        metrics.group_commit_duration.observe(started.elapsed());
        metrics.group_commit_appends.observe_size(batches);
    }
}

/// Whether Postgres reported the error of a statement, which fails its transaction.
fn is_of_statement(error: &Error) -> bool {
    error.as_db_error().is_some()
}

/// Whether the transaction of a statement that was one alone is known to be rolled back. What ends the whole session can come
/// after the commit, as while it waits for a standby.
fn is_rolled_back(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| error.parsed_severity() == Some(Severity::Error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::GENESIS;
    use farthing_core::idempotency::ClaimId;

    const MIB: usize = 1024 * 1024;

    /// An append to this partition of a batch with so many bytes of events and nothing else.
    fn append_events(partition: i16, bytes: usize) -> Append {
        let mut batch = AppendBatch::after(0, GENESIS, "a test".to_owned());
        (batch.count, batch.events) = (1, "x".repeat(bytes));
        let (partition, expected) =
            (Partition::new(partition), Head { position: 0, hash: GENESIS, epoch: 1 });
        Append { partition, expected, batch: Arc::new(batch), reply: oneshot::channel().0 }
    }

    #[test]
    fn batches_of_events_alone_come_first_if_there_are_several_and_they_are_short() {
        let in_order = |mut group: Vec<Append>| {
            let count = events_at_once(&mut group);
            let order: Vec<_> = group.iter().map(|append| append.partition.number()).collect();
            (count, order)
        };
        let mixed = || vec![append(0, 1), append_events(1, 1), append(2, 1), append_events(3, 1)];
        assert_eq!(in_order(mixed()), (2, vec![1, 3, 0, 2]));
        assert_eq!(in_order(mixed().into_iter().take(3).collect()), (0, vec![0, 1, 2]), "one alone");
        let long = MAX_STATEMENT_BYTES / 2 + 1;
        let long = vec![append_events(0, long), append_events(1, long), append_events(2, 1), append(3, 1)];
        assert_eq!(in_order(long), (2, vec![0, 2, 1, 3]));
        assert_eq!(in_order(Vec::new()), (0, vec![]));
    }

    /// An append to this partition of a batch with so many bytes.
    fn append(partition: i16, bytes: usize) -> Append {
        let mut batch = AppendBatch::after(0, GENESIS, "a test".to_owned());
        let request_id = "req_00000000000000000000000001".parse().unwrap();
        batch.claims.answer(ClaimId::stored("an id".to_owned()), request_id, vec![0; bytes].into());
        Append {
            partition: Partition::new(partition),
            expected: Head { position: 0, hash: GENESIS, epoch: 1 },
            batch: Arc::new(batch),
            reply: oneshot::channel().0,
        }
    }

    /// The transactions of waiting appends with these bytes, one to each partition from 0: their partitions.
    fn groups_of(bytes: &[usize]) -> Vec<Vec<i16>> {
        let mut waiting: VecDeque<_> = (0..).zip(bytes).map(|(at, bytes)| append(at, *bytes)).collect();
        let mut groups = Vec::new();
        while !waiting.is_empty() {
            let group = take_group(&mut waiting);
            groups.push(group.iter().map(|append| append.partition.number()).collect());
        }
        groups
    }

    #[test]
    fn a_transaction_has_a_bound_of_batches_and_of_their_bytes() {
        let all: Vec<i16> = (0..30).collect();
        assert_eq!(groups_of(&[1; 31]), [all, vec![30]]);
        assert_eq!(groups_of(&[3 * MIB; 5]), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(groups_of(&[MAX_GROUP_BYTES / 2; 3]), [vec![0, 1], vec![2]]);
        assert_eq!(groups_of(&[MAX_GROUP_BYTES + 1, 1, 1]), [vec![0], vec![1, 2]], "each batch has one");
    }

    #[test]
    fn the_oldest_append_comes_first_and_then_the_smallest_ones() {
        let large = 5 * MIB;
        assert_eq!(groups_of(&[large, large, large, 2, 1]), [vec![0, 4, 3], vec![1], vec![2]]);
        assert_eq!(groups_of(&[1, large, large, 2 * MIB]), [vec![0, 3, 1], vec![2]]);
    }
}
