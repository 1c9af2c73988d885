//! A follower: one consumer of the tail, in one partition or in several.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_core::partition::Partition;
use tokio::time::Instant;

use super::page::{Batches, Chunk, Page};
use super::window::Lookup;
use super::{Pace, READ_EVENTS, Shared};
use crate::positions::Positions;
use crate::reader::{Error, Reader};

/// A consumer of the tail.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    id: u64,
    pace: Pace,
    lag: Mutex<Lag>,
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
        Self { shared, id, pace, lag: Mutex::default() }
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
            let limit = (max - page.len().min(max)).min(READ_EVENTS).div_ceil(behind.len().max(1)).max(1);
            for (partition, position) in behind {
                let entries =
                    self.read_behind(async |reader| reader.read(partition, position, limit).await).await?;
                if entries.is_empty() {
                    self.leave_other_log(partition);
                } else {
                    page.add(&Arc::new(Chunk::from(entries)), position, usize::MAX);
                }
            }
            if !page.is_empty() {
                return Ok(page);
            }
        }
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
                return Ok(page.batches());
            }
            if behind.is_empty() {
                self.shared.advance(&after, news).await?;
                continue;
            }
            let limit = max.min(READ_EVENTS);
            let read = async |reader: &Reader| reader.read_batches(partition, position, limit).await;
            let batches = self.read_behind(read).await?;
            if !batches.is_empty() {
                return Ok(batches);
            }
            self.leave_other_log(partition);
        }
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
