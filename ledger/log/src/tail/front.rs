//! The reader at the end of the window. The follower that holds its lock reads for all followers, in every partition
//! that has new events.

use std::time::Duration;

use farthing_core::partition::Partition;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;

use super::page::Chunk;
use super::{READ_EVENTS, Shared};
use crate::positions::Positions;
use crate::reader::{Error, Reader};

/// The longest wait for new events without a wake-up notification.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The shortest time between two reads at the end of the log, so that a read of a busy log finds many events. Those who
/// follow need no pause of their own: they get what each read finds at once.
const READ_INTERVAL: Duration = Duration::from_millis(30);

/// The connection that reads new events, and the wake-up notifications.
#[derive(Debug)]
pub(super) struct Front {
    reader: Option<Reader>,
    notifications: watch::Receiver<()>,
    /// Whether a wait is over but for [`READ_INTERVAL`]: one that is cancelled then has taken the notification.
    is_due: bool,
    last_read: Option<Instant>,
    /// The clearing of the window since which `reader` is open.
    clearings: u64,
    /// Whether the last read left events unread, or was cancelled, so that the next one need not wait.
    more_at_once: bool,
}

/// The part of a read that belongs to one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    partition: Partition,
    /// The position after which to read.
    after: i64,
    /// The number of events up to the head.
    missing: usize,
    /// About the number of events to read.
    limit: usize,
}

impl Front {
    pub(super) const fn new(notifications: watch::Receiver<()>) -> Self {
        Self { reader: None, notifications, is_due: false, last_read: None, clearings: 0, more_at_once: true }
    }

    /// Waits until a read is due, then reads about [`READ_EVENTS`] events of the partitions that have new ones.
    pub(super) async fn read(&mut self, shared: &Shared) -> Result<(), Error> {
        self.wait().await;
        self.is_due = false;
        self.last_read = Some(Instant::now());
        // One that is cancelled leaves this, so that the next follower reads at once: it may have taken the notification.
        self.more_at_once = true;
        let read = self.read_now(shared).await;
        self.more_at_once = matches!(read, Ok(true));
        if read.is_err() {
            self.reader = None;
            // The next connection may lead to another server.
            shared.window().clear_all();
        }
        read.map(|_| ())
    }

    /// Reads; returns whether it left events unread.
    async fn read_now(&mut self, shared: &Shared) -> Result<bool, Error> {
        let clearings = shared.window().clearings();
        if std::mem::replace(&mut self.clearings, clearings) != clearings {
            self.reader = None;
        }
        let reader = match &self.reader {
            Some(reader) => reader,
            None => self.reader.insert(Reader::connect(&shared.database_url, shared.role).await?),
        };
        self.notifications.borrow_and_update();
        let heads = reader.heads().await?;
        shared.heads.saw(&heads);
        let parts = divided(&shared.window().ends(), &heads);
        // All reads are sent before the first is answered.
        let reads = parts
            .iter()
            .map(|share| reader.read_shared(share.partition, share.after, share.limit, parts.len()));
        let (mut result, mut are_left) = (Ok(()), false);
        for (share, read) in parts.iter().zip(join_all(reads).await) {
            match read {
                Ok(entries) if entries.is_empty() => {}
                Ok(entries) => {
                    are_left |= entries.len() < share.missing;
                    shared.window().push(share.partition, share.after, clearings, Chunk::from(entries));
                }
                Err(error) => result = Err(error),
            }
        }
        shared.news.notify_waiters();
        result.map(|()| are_left)
    }

    /// Waits for a notification or the next poll, and at least for the rest of [`READ_INTERVAL`].
    async fn wait(&mut self) {
        let Some(last_read) = self.last_read.filter(|_| !self.more_at_once) else { return };
        if !self.is_due {
            let poll = last_read + POLL_INTERVAL;
            if let Ok(Err(_)) = tokio::time::timeout_at(poll, self.notifications.changed()).await {
                // No task listens for notifications: poll.
                tokio::time::sleep_until(poll).await;
            }
            self.is_due = true;
        }
        tokio::time::sleep_until(last_read + READ_INTERVAL).await;
    }
}

/// Divides a read of [`READ_EVENTS`] between the partitions whose head is past the window's end: each gets an equal part,
/// and what one does not need goes to the others.
fn divided(ends: &Positions, heads: &Positions) -> Vec<Share> {
    let missing = |partition, after| usize::try_from(heads.get(partition) - after).unwrap_or(0);
    let all = ends.iter().map(|(partition, after)| {
        let missing = missing(partition, after);
        Share { partition, after, missing, limit: 0 }
    });
    let mut shares: Vec<_> = all.filter(|share| share.missing > 0).collect();
    shares.sort_unstable_by_key(|share| share.missing);
    let (mut left, mut partitions) = (READ_EVENTS, shares.len());
    for share in &mut shares {
        share.limit = share.missing.min(left.div_ceil(partitions)).max(1);
        left = left.saturating_sub(share.limit);
        partitions -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(positions: &[i64]) -> Positions {
        (0..).map(Partition::new).zip(positions.iter().copied()).collect()
    }

    /// The partitions to read, with the limit of each.
    fn limits(ends: &[i64], heads: &[i64]) -> Vec<(i16, usize)> {
        let shares = divided(&positions(ends), &positions(heads));
        shares.iter().map(|share| (share.partition.number(), share.limit)).collect()
    }

    #[test]
    fn only_partitions_with_new_events_are_read() {
        assert_eq!(limits(&[5, 7, 9], &[5, 8, 9]), [(1, 1)]);
        assert_eq!(limits(&[5, 7], &[4, 0]), []);
        assert_eq!(
            divided(&positions(&[5]), &positions(&[6, 9])).len(),
            1,
            "no follower has asked for partition 1"
        );
    }

    #[test]
    fn a_read_is_divided_equally_and_nothing_of_it_is_left_while_events_are_missing() {
        assert_eq!(limits(&[0, 0], &[10_000, 10_000]), [(0, 1_024), (1, 1_024)]);
        assert_eq!(limits(&[0, 0, 0], &[10_000, 48, 10_000]), [(1, 48), (0, 1_000), (2, 1_000)]);
        assert_eq!(limits(&[0], &[10_000]), [(0, READ_EVENTS)]);
        let many = limits(&vec![0; 3_000], &vec![9; 3_000]);
        assert!(many.len() == 3_000 && many.iter().all(|(_, limit)| *limit == 1), "each gets at least one");
    }
}
