//! Group commit over partitions: what the leaders of one process append while one transaction commits goes into the next
//! one, with one flush of the log's disk for all of them.
//!
//! Invariant: each append succeeds or fails as if it were alone. If one fails, the transaction is rolled back, and each is
//! executed in a transaction of its own. What is not known to be rolled back is in doubt, and its leader looks it up.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_postgres::{Client, Error, Statement};
use tokio_util::task::TaskTracker;

use super::append_statement::{APPEND, execute, try_execute};
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

/// A transaction that waits for a head, or for this process, keeps the other heads locked meanwhile: no longer than this,
/// which is less than a lease. An append that waits for its head is then executed alone.
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
        // Heads are locked in one order everywhere.
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

/// Answers that it is not known whether these are appended.
fn end_all(appends: impl Iterator<Item = Append>, why: &str) {
    for append in appends {
        // The leader may have given up.
        let _ = append.reply.send(Err(StoreError::Other(why.to_owned())));
    }
}

/// A connection with the statement.
struct Connection {
    client: Client,
    append: Statement,
}

impl Connection {
    async fn open(database_url: &str, role: Role) -> StoreResult<Self> {
        let opened = async {
            let client = connect::connect(database_url, role).await?;
            set_up(&client).await?;
            let append = client.prepare(APPEND).await?;
            Ok(Self { client, append })
        };
        let timeout = || StoreError::Other("Postgres does not answer".to_owned());
        tokio::time::timeout(ATTEMPT_TIMEOUT, opened).await.map_err(|_| timeout())?
    }

    /// Commits the appends of `group` and answers them. Those that remain in it are not answered.
    async fn commit(&self, group: &mut Vec<Append>, metrics: &LedgerMetrics) {
        let mut was_tried = false;
        if group.len() > 1 {
            if self.commit_together(group, metrics).await {
                return;
            }
            was_tried = true;
        }
        while let Some(Append { partition, expected, batch, .. }) = group.first() {
            let started = Instant::now();
            let appended = match execute(&self.client, &self.append, *partition, *expected, batch).await {
                // The leader looks up which it is.
                Ok(false) if was_tried => Err(StoreError::Other("the head has moved meanwhile".to_owned())),
                appended => appended,
            };
            count_commit(metrics, started, usize::from(matches!(appended, Ok(true))));
            let _ = group.remove(0).reply.send(appended);
        }
    }

    /// Commits all appends of `group` in one transaction and answers them; `false` if it was rolled back because one failed,
    /// and none is answered. The one that failed is then the last.
    async fn commit_together(&self, group: &mut Vec<Append>, metrics: &LedgerMetrics) -> bool {
        let started = Instant::now();
        let appends = group.iter().map(|Append { partition, expected, batch, .. }| {
            try_execute(&self.client, &self.append, *partition, *expected, batch)
        });
        // The statements are sent in this order, without a wait for the replies.
        let (begun, appended, committed) = tokio::join!(
            biased;
            self.client.batch_execute(BEGIN),
            join_all(appends),
            self.client.batch_execute("COMMIT"),
        );
        match begun.and(committed) {
            Ok(()) if appended.iter().all(Result::is_ok) => {
                let count = appended.iter().filter(|appended| matches!(appended, Ok(true))).count();
                count_commit(metrics, started, count);
                for (append, appended) in group.drain(..).zip(appended) {
                    let _ = append.reply.send(appended.map_err(StoreError::from));
                }
                true
            }
            Ok(()) => {
                // After an error in the transaction, Postgres rolls back when it is told to commit.
                let failed =
                    appended.iter().position(|appended| appended.as_ref().is_err_and(is_of_statement));
                if let Some(failed) = failed {
                    let failed = group.remove(failed);
                    group.push(failed);
                    return false;
                }
                end_all(group.drain(..), "a reply of Postgres cannot be read");
                true
            }
            Err(error) => {
                end_all(group.drain(..), &StoreError::from(error).to_string());
                true
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::GENESIS;
    use farthing_core::idempotency::ClaimId;

    const MIB: usize = 1024 * 1024;

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
