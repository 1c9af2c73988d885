//! A follower: one consumer of the tail, in one partition or in several.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_core::partition::Partition;
use tokio::time::Instant;

use super::page::{Batches, Chunk, Page};
use super::window::Lookup;
use super::{Pace, READ_EVENTS, Shared};
use crate::chain::Hash;
use crate::positions::Positions;
use crate::reader::{Entry, Error, Reader};
use crate::record_batch::RecordBatch;

/// A consumer of the tail.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    id: u64,
    pace: Pace,
    lag: Mutex<Lag>,
    /// The positions of the last events that it got, and their hashes.
    last: Mutex<HashMap<Partition, (i64, Hash)>>,
}

/// Where a follower is behind the window.
#[derive(Debug, Default)]
struct Lag {
    partitions: BTreeSet<Partition>,
    /// The connection of those that are behind, while this follower is in any partition.
    reader: Option<Arc<Reader>>,
    /// The partition whose turn is first in the next page, so that a busy one does not keep the others out.
    first: Option<Partition>,
}

/// An event: a record batch, and the index in it.
type InBatch<'a> = (&'a Arc<RecordBatch>, usize);

/// What a follower finds in the window.
#[derive(Debug)]
struct Found {
    page: Page,
    /// The partitions whose next events have left the window.
    behind: Vec<(Partition, i64)>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.window().remove_follower(self.id);
        self.shared.followers_moved.notify_waiters();
    }
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>, id: u64, pace: Pace) -> Self {
        Self { shared, id, pace, lag: Mutex::default(), last: Mutex::default() }
    }

    /// Waits for events after the position of any partition in `after` and returns about `max` of them: no
    /// record batch is divided. After a failure
    /// the caller may go back to earlier positions. Cancel-safe.
    pub async fn next(&self, after: &Positions, max: usize) -> Result<Page, Error> {
        loop {
            let news = self.shared.news.notified();
            let Found { mut page, behind } = self.find(after, max);
            if page.is_empty() && behind.is_empty() {
                self.shared.advance(after, news).await?;
                continue;
            }
            let reads = behind.len();
            let limit = (max - page.len().min(max)).min(READ_EVENTS).div_ceil(reads.max(1)).max(1);
            for (partition, position) in behind {
                let read =
                    async |reader: &Reader| reader.read_shared(partition, position, limit, reads).await;
                let entries = self.read_behind(read).await?;
                if entries.is_empty() {
                    self.leave_other_log(partition);
                } else {
                    page.add(&Arc::new(Chunk::from(entries)), position, usize::MAX);
                }
            }
            if !page.is_empty() {
                let runs = page.runs().filter_map(|run| {
                    let (first, last) = (run.first()?.batch(), run.last()?.batch());
                    Some(((first.0, first.1), (last.0, last.1)))
                });
                self.check_chain(runs)?;
                return Ok(page);
            }
        }
    }

    /// The consumer went on only as far as `entry` in what it got last: the next event of its partition follows that one.
    pub fn stopped_at(&self, entry: &Entry) {
        let (batch, at) = entry.batch();
        self.follows(batch.partition(), batch.position_of(at), batch.hash_array(at));
    }

    /// The next events of the partition must be in the chain of the one at `position`, which has the hash `hash`.
    pub(crate) fn follows(&self, partition: Partition, position: i64, hash: Hash) {
        self.last().insert(partition, (position, hash));
    }

    /// Fails if the first event of a run, each given by its first and its last event, is not in the chain of the event before,
    /// which this follower got: then that one is of another log, and the consumer starts again from its checkpoint.
    fn check_chain<'a>(&self, runs: impl Iterator<Item = (InBatch<'a>, InBatch<'a>)>) -> Result<(), Error> {
        let mut last = self.last();
        for ((first, at), (end, end_at)) in runs {
            let (partition, position) = (first.partition(), first.position_of(at));
            let before = last.remove(&partition).filter(|(before, _)| before + 1 == position);
            if before.is_some_and(|(_, hash)| !first.follows(at, &hash)) {
                self.leave_other_log(partition);
                return Err(Error::OtherLog { partition, position });
            }
            last.insert(partition, (end.position_of(end_at), end.hash_array(end_at)));
        }
        Ok(())
    }

    fn last(&self) -> MutexGuard<'_, HashMap<Partition, (i64, Hash)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::next`] for one partition, but returns the record batches of the events: each once and whole, with the
    /// index of its first event after `position`. Behind the window no event is decoded.
    pub(crate) async fn next_batches(
        &self,
        partition: Partition,
        position: i64,
        max: usize,
    ) -> Result<Batches, Error> {
        let after = Positions::from_iter([(partition, position)]);
        loop {
            let news = self.shared.news.notified();
            let Found { page, behind } = self.find(&after, max);
            if !page.is_empty() {
                return self.checked(page.batches());
            }
            if behind.is_empty() {
                self.shared.advance(&after, news).await?;
                continue;
            }
            let limit = max.min(READ_EVENTS);
            let read = async |reader: &Reader| reader.read_batches(partition, position, limit).await;
            let batches = self.read_behind(read).await?;
            if !batches.is_empty() {
                return self.checked(batches);
            }
            self.leave_other_log(partition);
        }
    }

    /// These batches of one partition, if they are in the chain of the event before.
    fn checked(&self, batches: Batches) -> Result<Batches, Error> {
        let first = batches.first().map(|(batch, index)| (batch, *index));
        let run = first.zip(batches.last().map(|(batch, _)| (batch, batch.len() - 1)));
        self.check_chain(run.into_iter())?;
        Ok(batches)
    }

    /// Records the follower's positions and takes the events after them from the window: about `max`, or half as many
    /// if others have left the window.
    fn find(&self, after: &Positions, max: usize) -> Found {
        let (mut window, now, mut moved) = (self.shared.window(), Instant::now(), false);
        let (mut inside, mut behind) = (Vec::new(), Vec::new());
        for (partition, position) in after.iter() {
            moved |= self.pace == Pace::Together && window.record_position(self.id, partition, position, now);
            match window.look_up(partition, position) {
                Lookup::Inside => inside.push((partition, position)),
                Lookup::AtEnd => {}
                Lookup::Behind => behind.push((partition, position)),
            }
        }
        let mut lag = self.lag();
        let first = inside.partition_point(|(partition, _)| Some(*partition) < lag.first);
        inside.rotate_left(first);
        let mut left = if behind.is_empty() { max } else { max.div_ceil(2) };
        let mut page = Page::default();
        lag.first = None;
        for (partition, position) in inside {
            if left == 0 {
                lag.first = Some(partition);
                break;
            }
            left = left.saturating_sub(window.take(&mut page, partition, position, left));
        }
        lag.record(after, &behind);
        drop((window, lag));
        if moved {
            self.shared.followers_moved.notify_waiters();
        }
        Found { page, behind }
    }

    /// Reads on the connection of those that are behind, which this follower leaves when a read fails.
    async fn read_behind<T>(&self, read: impl AsyncFnOnce(&Reader) -> Result<T, Error>) -> Result<T, Error> {
        let found = read(&*self.reader().await?).await;
        if found.is_err() {
            self.lag().reader = None;
        }
        found
    }

    /// The connection of those that are behind.
    async fn reader(&self) -> Result<Arc<Reader>, Error> {
        if let Some(reader) = self.lag().reader.clone() {
            return Ok(reader);
        }
        let reader = self.shared.reader_behind().await?;
        self.lag().reader = Some(Arc::clone(&reader));
        Ok(reader)
    }

    fn lag(&self) -> MutexGuard<'_, Lag> {
        self.lag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears the window of a partition, which holds events of a log that no longer exists: the next read starts from
    /// this follower's position.
    fn leave_other_log(&self, partition: Partition) {
        self.shared.window().clear(partition);
    }
}

impl Lag {
    /// Of the partitions in `after`, the follower is behind in those of `behind`. It leaves the connection of those
    /// that are behind once it is behind in none.
    fn record(&mut self, after: &Positions, behind: &[(Partition, i64)]) {
        for (partition, _) in after.iter() {
            self.partitions.remove(&partition);
        }
        self.partitions.extend(behind.iter().map(|(partition, _)| *partition));
        if self.partitions.is_empty() {
            self.reader = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::super::{Tail, TailConfig};
    use super::*;
    use crate::chain::{self, GENESIS, Link};
    use crate::connect::Role;
    use crate::reader::Entry;

    const PARTITION: Partition = Partition::new(0);

    /// A tail whose server does not answer.
    fn tail() -> Tail {
        let url = "postgres://farthing@127.0.0.1:1/farthing".to_owned();
        let config = TailConfig { database_url: url, role: Role::Owner, nats: None };
        Tail::start(config, CancellationToken::new(), &TaskTracker::new())
    }

    /// Record batches of one event each from `position` on, in the chain of the event with the hash `last`, which becomes
    /// that of the last of them.
    fn events(position: i64, lines: &[&str], last: &mut Hash) -> Vec<Entry> {
        let entries = (position..).zip(lines).map(|(position, line)| {
            let recorded_at = DateTime::UNIX_EPOCH;
            let link = Link { position, recorded_at, writer: "a writer", record: line };
            *last = chain::hash(last, &link);
            let at = (PARTITION, position);
            let batch = RecordBatch::new(
                at,
                1,
                recorded_at,
                "a writer".to_owned(),
                line.bytes().collect(),
                last.to_vec(),
            );
            Entry::read(&Arc::new(batch.unwrap()), 0)
        });
        entries.collect()
    }

    fn after(position: i64) -> Positions {
        Positions::from_iter([(PARTITION, position)])
    }

    /// Puts events into the window after those up to `position`, as if they had been read.
    fn put(tail: &Tail, position: i64, entries: Vec<Entry>) {
        let mut window = tail.shared.window();
        let _ = window.look_up(PARTITION, position);
        let clearings = window.clearings();
        window.push(PARTITION, position, clearings, Chunk::from(entries));
    }

    #[tokio::test]
    async fn an_event_of_another_log_is_not_followed() {
        let tail = tail();
        let follower = tail.follow(Pace::Together);
        let mut last = GENESIS;
        put(&tail, 0, events(1, &["a", "b"], &mut last));
        assert_eq!(follower.next(&after(0), 10).await.unwrap().len(), 2);
        let (mut same, mut other) = (last, GENESIS);
        put(&tail, 2, events(3, &["c"], &mut same));
        assert_eq!(follower.next(&after(2), 10).await.unwrap().len(), 1);
        // The log of a server that lacks the end of the one before.
        events(1, &["a", "b", "another"], &mut other);
        put(&tail, 3, events(4, &["d"], &mut other));
        let error = follower.next(&after(3), 10).await.unwrap_err();
        assert!(matches!(error, Error::OtherLog { partition: PARTITION, position: 4 }), "{error}");
        let relay = tail.follow(Pace::Apart);
        relay.follows(PARTITION, 3, same);
        put(&tail, 3, events(4, &["d"], &mut other.clone()));
        let error = relay.next_batches(PARTITION, 3, 10).await.unwrap_err();
        assert!(matches!(error, Error::OtherLog { position: 4, .. }), "{error}");
    }

    #[tokio::test]
    async fn a_consumer_that_starts_again_gets_nothing_that_was_read_before() {
        let tail = tail();
        let before = tail.follow(Pace::Together);
        put(&tail, 0, events(1, &["a", "b"], &mut GENESIS.clone()));
        assert_eq!(before.next(&after(0), 10).await.unwrap().len(), 2);
        drop(before);
        let again = tail.follow(Pace::Together);
        let error = again.next(&after(0), 10).await.unwrap_err();
        assert!(matches!(error, Error::Database(_)), "it reads the log: {error}");
    }
}
