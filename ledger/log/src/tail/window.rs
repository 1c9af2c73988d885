//! The window: the newest events of each partition that were read, in chunks, and the positions of the followers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farthing_core::partition::Partition;
use tokio::time::Instant;

use super::READ_EVENTS;
use super::page::{Chunk, InBatch, Page};
use crate::positions::Positions;
use crate::reader::Entry;

/// The most events in the window.
const MAX_EVENTS: usize = 32_768;

/// The most bytes of records in the window.
const MAX_BYTES: usize = 48 * 1024 * 1024;

/// How long eviction waits for a follower that does not move.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// How far a follower may be ahead of the window and still wait for it. Beyond that the window is moved to the follower.
const MAX_AHEAD: i64 = 2_048;

/// The newest events that were read. All partitions share its bounds.
#[derive(Debug)]
pub(super) struct Window<E = Entry> {
    partitions: BTreeMap<Partition, Section<E>>,
    events: usize,
    bytes: usize,
    /// The number of the last chunk.
    last_chunk: u64,
    last_follower_id: u64,
    /// How often all was removed.
    clearings: u64,
}

/// The part of the window that belongs to one partition. Invariant: each chunk follows the one before without a gap, and
/// the last one ends at `end`.
#[derive(Debug)]
struct Section<E> {
    /// With their numbers, by which the oldest is found.
    chunks: VecDeque<(u64, Arc<Chunk<E>>)>,
    /// The position after which events are read next; `None` until a follower says where.
    end: Option<i64>,
    followers: HashMap<u64, FollowerPosition>,
}

/// The position of a follower, and when it reached it.
#[derive(Debug, Clone, Copy)]
struct FollowerPosition {
    position: i64,
    since: Instant,
}

/// Where a position lies relative to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The window holds the next events.
    Inside,
    /// The window ends here.
    AtEnd,
    /// The next event has left the window.
    Behind,
}

impl<E> Default for Section<E> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), end: None, followers: HashMap::new() }
    }
}

impl<E> Default for Window<E> {
    fn default() -> Self {
        Self {
            partitions: BTreeMap::new(),
            events: 0,
            bytes: 0,
            last_chunk: 0,
            last_follower_id: 0,
            clearings: 0,
        }
    }
}

impl<E> Window<E> {
    /// An id for a new follower.
    pub(super) const fn next_follower_id(&mut self) -> u64 {
        self.last_follower_id += 1;
        self.last_follower_id
    }

    /// Records the position of a follower that others wait for. Returns whether it moved.
    pub(super) fn record_position(
        &mut self,
        id: u64,
        partition: Partition,
        position: i64,
        now: Instant,
    ) -> bool {
        let followers = &mut self.partitions.entry(partition).or_default().followers;
        let known = followers.entry(id).or_insert(FollowerPosition { position, since: now });
        let moved = known.position != position;
        if moved {
            *known = FollowerPosition { position, since: now };
        }
        moved
    }

    /// Forgets a follower.
    pub(super) fn remove_follower(&mut self, id: u64) {
        for section in self.partitions.values_mut() {
            section.followers.remove(&id);
        }
    }

    /// Where `position` lies. The first follower of a partition, or one that is far ahead, sets where the window goes on.
    pub(super) fn look_up(&mut self, partition: Partition, position: i64) -> Lookup {
        let section = self.partitions.entry(partition).or_default();
        let Some(end) = section.end.filter(|end| position <= *end + MAX_AHEAD) else {
            self.clear(partition);
            self.partitions.entry(partition).or_default().end = Some(position);
            return Lookup::AtEnd;
        };
        let oldest = section.chunks.front().map_or(end + 1, |(_, chunk)| chunk.first);
        match position {
            _ if position >= end => Lookup::AtEnd,
            _ if position + 1 < oldest => Lookup::Behind,
            _ => Lookup::Inside,
        }
    }

    /// Adds the events of `partition` after `position` to `page`: `max`, and the rest of the last record batch. Returns how
    /// many.
    pub(super) fn take(&self, page: &mut Page<E>, partition: Partition, position: i64, max: usize) -> usize
    where
        E: InBatch,
    {
        let Some(section) = self.partitions.get(&partition) else { return 0 };
        let start = section.chunks.partition_point(|(_, chunk)| chunk.last() <= position);
        let mut taken = 0;
        for (_, chunk) in section.chunks.range(start..) {
            if taken >= max {
                break;
            }
            taken += page.add(chunk, position, max - taken);
        }
        taken
    }

    /// The positions after which events are read next.
    pub(super) fn ends(&self) -> Positions {
        self.partitions.iter().filter_map(|(partition, section)| Some((*partition, section.end?))).collect()
    }

    /// The deadline until which eviction is delayed because an active follower still needs the oldest chunk. `None` if
    /// one more read evicts nothing, or nothing that an active follower needs.
    pub(super) fn eviction_delayed_until(&self, now: Instant) -> Option<Instant> {
        let full = self.events + READ_EVENTS > MAX_EVENTS || self.bytes > MAX_BYTES / 2;
        let section = self.partitions.get(&self.oldest().filter(|_| full)?)?;
        let (_, oldest) = section.chunks.front()?;
        let needs_it = |follower: &&FollowerPosition| {
            follower.position + 1 >= oldest.first && follower.position < oldest.last()
        };
        let deadlines =
            section.followers.values().filter(needs_it).map(|follower| follower.since + STALLED_AFTER);
        deadlines.filter(|until| *until > now).max()
    }

    /// Adds a chunk that was read after `position` by a connection that is as old as the clearing `clearings`, and evicts the
    /// oldest chunks beyond the bounds. A chunk is dropped if all was removed since, or the partition goes on at another
    /// position by now.
    pub(super) fn push(&mut self, partition: Partition, position: i64, clearings: u64, chunk: Chunk<E>) {
        let section = self.partitions.entry(partition).or_default();
        if section.end != Some(position) || self.clearings != clearings {
            return;
        }
        section.end = Some(chunk.last());
        self.events += chunk.entries.len();
        self.bytes += chunk.bytes;
        self.last_chunk += 1;
        section.chunks.push_back((self.last_chunk, Arc::new(chunk)));
        while self.events > MAX_EVENTS || self.bytes > MAX_BYTES {
            let oldest = self.oldest().and_then(|oldest| self.partitions.get_mut(&oldest));
            let Some((_, chunk)) = oldest
                .and_then(|section| section.chunks.pop_front_if(|(number, _)| *number < self.last_chunk))
            else {
                return;
            };
            self.events -= chunk.entries.len();
            self.bytes -= chunk.bytes;
        }
    }

    /// The partition of the oldest chunk.
    fn oldest(&self) -> Option<Partition> {
        let number = |section: &Section<E>| section.chunks.front().map(|(number, _)| *number);
        let oldest =
            self.partitions.iter().filter_map(|(partition, section)| Some((number(section)?, *partition)));
        oldest.min().map(|(_, partition)| partition)
    }

    /// How often all was removed.
    pub(super) const fn clearings(&self) -> u64 {
        self.clearings
    }

    /// Removes all events of all partitions, also those that are being read.
    pub(super) fn clear_all(&mut self) {
        self.clearings += 1;
        let partitions: Vec<Partition> = self.partitions.keys().copied().collect();
        for partition in partitions {
            self.clear(partition);
        }
    }

    /// Removes all events of `partition`. A follower says where the window goes on.
    pub(super) fn clear(&mut self, partition: Partition) {
        let Some(section) = self.partitions.get_mut(&partition) else { return };
        section.end = None;
        for (_, chunk) in section.chunks.drain(..) {
            self.events -= chunk.entries.len();
            self.bytes -= chunk.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: Partition = Partition::new(0);
    const OTHER: Partition = Partition::new(1);

    /// A multiple of 7 and the event after it are one record batch; all others are alone.
    impl InBatch for i64 {
        fn ends_batch(&self) -> bool {
            self % 7 != 0
        }
    }

    /// A chunk of `length` events from `first` on; each event is its position.
    fn chunk(first: i64, length: i64, bytes: usize) -> Chunk<i64> {
        Chunk { first, entries: (first..first + length).collect(), bytes }
    }

    /// A window of partition 0 that begins after `position`.
    fn window_after(position: i64) -> Window<i64> {
        let mut window = Window::default();
        assert_eq!(window.look_up(PARTITION, position), Lookup::AtEnd);
        window
    }

    /// A window of full reads, as many as it holds.
    fn full_window() -> Window<i64> {
        let length = i64::try_from(READ_EVENTS).unwrap();
        let mut window = window_after(0);
        for read in 0..i64::try_from(MAX_EVENTS / READ_EVENTS).unwrap() {
            window.push(PARTITION, read * length, 0, chunk(read * length + 1, length, 1));
        }
        window
    }

    fn events(window: &mut Window<i64>, partition: Partition, position: i64, max: usize) -> Vec<i64> {
        assert_eq!(window.look_up(partition, position), Lookup::Inside);
        let mut page = Page::default();
        let count = window.take(&mut page, partition, position, max);
        assert_eq!(page.len(), count);
        page.entries().copied().collect()
    }

    #[test]
    fn a_page_runs_across_chunks_and_has_no_more_than_was_asked_for() {
        let mut window = window_after(4);
        window.push(PARTITION, 4, 0, chunk(5, 3, 1));
        window.push(PARTITION, 7, 0, chunk(8, 2, 1));
        assert_eq!(events(&mut window, PARTITION, 4, 100), [5, 6, 7, 8, 9]);
        assert_eq!(events(&mut window, PARTITION, 5, 3), [6, 7, 8]);
        assert_eq!(events(&mut window, PARTITION, 7, 1), [8]);
        assert_eq!(events(&mut window, PARTITION, 4, 1), [5]);
        assert_eq!(window.look_up(PARTITION, 9), Lookup::AtEnd);
        assert_eq!(window.look_up(PARTITION, 3), Lookup::Behind);
    }

    #[test]
    fn a_page_divides_no_record_batch() {
        let mut window = window_after(4);
        window.push(PARTITION, 4, 0, chunk(5, 6, 1));
        assert_eq!(events(&mut window, PARTITION, 4, 2), [5, 6]);
        assert_eq!(events(&mut window, PARTITION, 4, 3), [5, 6, 7, 8]);
        assert_eq!(events(&mut window, PARTITION, 6, 1), [7, 8]);
        assert_eq!(events(&mut window, PARTITION, 6, 3), [7, 8, 9]);
    }

    #[test]
    fn each_partition_has_its_own_positions() {
        let mut window = window_after(4);
        window.push(PARTITION, 4, 0, chunk(5, 3, 1));
        assert_eq!(window.look_up(OTHER, 70), Lookup::AtEnd);
        window.push(OTHER, 70, 0, chunk(71, 2, 1));
        assert_eq!(events(&mut window, PARTITION, 4, 100), [5, 6, 7]);
        assert_eq!(events(&mut window, OTHER, 71, 100), [72]);
        assert_eq!(window.ends().iter().collect::<Vec<_>>(), [(PARTITION, 7), (OTHER, 72)]);
        window.clear(OTHER);
        assert_eq!(window.ends().iter().collect::<Vec<_>>(), [(PARTITION, 7)]);
        assert_eq!((window.events, window.bytes), (3, 1));
    }

    #[test]
    fn a_follower_far_ahead_moves_the_window_and_one_a_little_ahead_waits() {
        let mut window = window_after(4);
        window.push(PARTITION, 4, 0, chunk(5, 3, 1));
        assert_eq!(window.look_up(PARTITION, 7 + MAX_AHEAD), Lookup::AtEnd);
        assert_eq!(window.ends().get(PARTITION), 7);
        assert_eq!(window.look_up(PARTITION, 8 + MAX_AHEAD), Lookup::AtEnd);
        assert_eq!(window.ends().get(PARTITION), 8 + MAX_AHEAD);
        assert_eq!(window.look_up(PARTITION, 5), Lookup::Behind);
        window.push(PARTITION, 7, 0, chunk(8, 1, 1));
        assert_eq!(window.events, 0, "a chunk that was read before is dropped");
    }

    #[test]
    fn the_oldest_chunk_of_all_partitions_is_evicted_first() {
        let mut window = full_window();
        assert_eq!(window.look_up(PARTITION, 0), Lookup::Inside);
        assert_eq!(window.look_up(OTHER, 0), Lookup::AtEnd);
        window.push(OTHER, 0, 0, chunk(1, 1, 1));
        assert_eq!(window.look_up(PARTITION, 0), Lookup::Behind, "by events");
        assert_eq!(window.look_up(OTHER, 0), Lookup::Inside);
        window.push(OTHER, 1, 0, chunk(2, 1, MAX_BYTES));
        assert_eq!(window.look_up(OTHER, 0), Lookup::Behind, "by bytes");
        assert_eq!((window.events, window.bytes), (1, MAX_BYTES));
        window.push(OTHER, 2, 0, chunk(3, 1, 2 * MAX_BYTES));
        assert_eq!(events(&mut window, OTHER, 2, 1), [3], "the newest chunk stays, whatever its size");
    }

    #[test]
    fn eviction_waits_only_for_a_follower_that_needs_the_oldest_chunk_and_moves() {
        let start = Instant::now();
        let mut window = full_window();
        assert_eq!(window.eviction_delayed_until(start), None, "no follower");
        let last = i64::try_from(READ_EVENTS).unwrap();
        for behind_or_past in [-1, last] {
            window.record_position(1, PARTITION, behind_or_past, start);
            assert_eq!(window.eviction_delayed_until(start), None, "position {behind_or_past}");
        }
        window.record_position(2, OTHER, last - 1, start);
        assert_eq!(window.eviction_delayed_until(start), None, "a follower of another partition");
        assert!(window.record_position(1, PARTITION, last - 1, start), "it moved");
        assert!(!window.record_position(1, PARTITION, last - 1, start + STALLED_AFTER), "it did not move");
        assert_eq!(window.eviction_delayed_until(start), Some(start + STALLED_AFTER));
        assert_eq!(window.eviction_delayed_until(start + STALLED_AFTER), None, "it has stalled");
        window.remove_follower(1);
        assert_eq!(window.eviction_delayed_until(start), None, "it has gone");
    }

    #[test]
    fn eviction_waits_for_no_follower_while_there_is_room() {
        let start = Instant::now();
        let mut window = window_after(0);
        window.push(PARTITION, 0, 0, chunk(1, 1, MAX_BYTES / 2));
        window.record_position(1, PARTITION, 0, start);
        assert_eq!(window.eviction_delayed_until(start), None);
        window.push(PARTITION, 1, 0, chunk(2, 1, 1));
        assert_eq!(
            window.eviction_delayed_until(start),
            Some(start + STALLED_AFTER),
            "more than half of the bytes"
        );
    }

    #[test]
    fn what_an_older_connection_read_does_not_come_back_once_all_was_removed() {
        let mut window = window_after(10);
        window.push(PARTITION, 10, 0, chunk(11, 5, 1));
        assert_eq!(window.look_up(PARTITION, 12), Lookup::Inside);
        window.clear_all();
        assert_eq!((window.events, window.bytes), (0, 0));
        assert_eq!(window.look_up(PARTITION, 12), Lookup::AtEnd, "events after 12 are read again");
        window.push(PARTITION, 12, 0, chunk(13, 5, 1));
        assert_eq!(window.look_up(PARTITION, 12), Lookup::AtEnd, "they were read before");
        window.push(PARTITION, 12, window.clearings(), chunk(13, 5, 1));
        assert_eq!(window.look_up(PARTITION, 12), Lookup::Inside);
    }
}
