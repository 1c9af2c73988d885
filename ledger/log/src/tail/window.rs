//! The window: the newest events that were read, in chunks, and the positions of the followers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::READ_EVENTS;
use crate::reader::Entry;
use crate::record_batch::RecordBatch;

/// The most events in the window.
const MAX_EVENTS: usize = 32_768;

/// The most bytes of records in the window.
const MAX_BYTES: usize = 48 * 1024 * 1024;

/// How long eviction waits for a follower that does not move.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Record batches, each with the index of the first event that is wanted.
pub(crate) type Batches = Vec<(Arc<RecordBatch>, usize)>;

/// Consecutive events that were read at once; never empty.
#[derive(Debug)]
pub(super) struct Chunk<E = Entry> {
    first: i64,
    entries: Vec<E>,
    bytes: usize,
}

impl From<Vec<Entry>> for Chunk {
    fn from(entries: Vec<Entry>) -> Self {
        let first = entries.first().map_or(0, Entry::position);
        let bytes = entries.iter().map(|entry| entry.line().len()).sum();
        Self { first, entries, bytes }
    }
}

impl<E> Chunk<E> {
    /// The position of the last event.
    fn last(&self) -> i64 {
        self.first + i64::try_from(self.entries.len()).unwrap_or(i64::MAX) - 1
    }
}

/// The newest events that were read. Invariant: each chunk follows the one before without a gap.
#[derive(Debug)]
pub(super) struct Window<E = Entry> {
    chunks: VecDeque<Arc<Chunk<E>>>,
    events: usize,
    bytes: usize,
    last_follower_id: u64,
    followers: HashMap<u64, FollowerPosition>,
}

/// The position of a follower, and when it reached it.
#[derive(Debug, Clone, Copy)]
struct FollowerPosition {
    position: i64,
    since: Instant,
}

/// Where a position lies relative to the window.
#[derive(Debug)]
pub(super) enum Lookup<E = Entry> {
    /// The window holds the next events.
    Inside(Page<E>),
    /// The window ends here: read on after this position.
    AtEnd,
    /// The next event has left the window.
    Behind,
}

impl<E> Default for Window<E> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), events: 0, bytes: 0, last_follower_id: 0, followers: HashMap::new() }
    }
}

impl<E> Window<E> {
    /// An id for a new follower.
    pub(super) const fn next_follower_id(&mut self) -> u64 {
        self.last_follower_id += 1;
        self.last_follower_id
    }

    /// Records the position of a follower that others wait for. Returns whether it moved.
    pub(super) fn record_position(&mut self, id: u64, position: i64, now: Instant) -> bool {
        let known = self.followers.entry(id).or_insert(FollowerPosition { position, since: now });
        let moved = known.position != position;
        if moved {
            *known = FollowerPosition { position, since: now };
        }
        moved
    }

    /// Forgets a follower.
    pub(super) fn remove_follower(&mut self, id: u64) {
        self.followers.remove(&id);
    }

    /// Looks for up to `max` events after `position`.
    pub(super) fn look_up(&self, position: i64, max: usize) -> Lookup<E> {
        let (Some(oldest), Some(newest)) = (self.chunks.front(), self.chunks.back()) else {
            return Lookup::AtEnd;
        };
        if position >= newest.last() {
            return Lookup::AtEnd;
        }
        if position + 1 < oldest.first {
            return Lookup::Behind;
        }
        let start = self.chunks.partition_point(|chunk| chunk.last() <= position);
        let mut runs = Vec::new();
        let mut wanted = max;
        for chunk in self.chunks.range(start..) {
            let skipped = usize::try_from(position + 1 - chunk.first).unwrap_or(0);
            let taken = (chunk.entries.len() - skipped).min(wanted);
            runs.push(Run { chunk: Arc::clone(chunk), start: skipped, end: skipped + taken });
            wanted -= taken;
            if wanted == 0 {
                break;
            }
        }
        Lookup::Inside(Page { runs })
    }

    /// The deadline until which eviction is delayed because an active follower still needs the oldest chunk. `None` if
    /// one more read evicts nothing, or nothing that an active follower needs.
    pub(super) fn eviction_delayed_until(&self, now: Instant) -> Option<Instant> {
        let full = self.events + READ_EVENTS > MAX_EVENTS || self.bytes > MAX_BYTES / 2;
        let oldest = self.chunks.front().filter(|_| full)?;
        let needs_it = |follower: &&FollowerPosition| {
            follower.position + 1 >= oldest.first && follower.position < oldest.last()
        };
        let deadlines =
            self.followers.values().filter(needs_it).map(|follower| follower.since + STALLED_AFTER);
        deadlines.filter(|until| *until > now).max()
    }

    /// Adds a chunk that was read after `position`, and evicts the oldest chunks beyond the bounds. A window that ends
    /// at another position is cleared first.
    pub(super) fn push(&mut self, position: i64, chunk: Chunk<E>) {
        if self.chunks.back().is_some_and(|newest| newest.last() != position) {
            self.clear();
        }
        self.events += chunk.entries.len();
        self.bytes += chunk.bytes;
        self.chunks.push_back(Arc::new(chunk));
        while (self.events > MAX_EVENTS || self.bytes > MAX_BYTES) && self.chunks.len() > 1 {
            if let Some(oldest) = self.chunks.pop_front() {
                self.events -= oldest.entries.len();
                self.bytes -= oldest.bytes;
            }
        }
    }

    /// Removes all events.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        (self.events, self.bytes) = (0, 0);
    }
}

/// Consecutive events of one chunk.
#[derive(Debug)]
struct Run<E> {
    chunk: Arc<Chunk<E>>,
    start: usize,
    end: usize,
}

/// Consecutive events, at least one.
#[derive(Debug)]
pub struct Page<E = Entry> {
    runs: Vec<Run<E>>,
}

impl<E> From<Chunk<E>> for Page<E> {
    fn from(chunk: Chunk<E>) -> Self {
        let end = chunk.entries.len();
        Self { runs: vec![Run { chunk: Arc::new(chunk), start: 0, end }] }
    }
}

impl<E> Page<E> {
    /// The events in order.
    pub fn entries(&self) -> impl Iterator<Item = &E> {
        self.runs.iter().flat_map(|run| &run.chunk.entries[run.start..run.end])
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Always `false`.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Page {
    /// The record batches of the events, each once and whole, and the index of the first event that is in the
    /// page. The last batch may have events beyond the end of the page.
    pub(super) fn batches(&self) -> Batches {
        let mut last = 0;
        let batches = self.entries().filter_map(|entry| {
            let (batch, index) = entry.batch();
            (entry.position() > last).then(|| {
                last = batch.last_position();
                (Arc::clone(batch), index)
            })
        });
        batches.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk of `length` events from `first` on; each event is its position.
    fn chunk(first: i64, length: i64, bytes: usize) -> Chunk<i64> {
        Chunk { first, entries: (first..first + length).collect(), bytes }
    }

    /// A window of full reads, as many as it holds.
    fn full_window() -> Window<i64> {
        let length = i64::try_from(READ_EVENTS).unwrap();
        let mut window = Window::default();
        for read in 0..i64::try_from(MAX_EVENTS / READ_EVENTS).unwrap() {
            window.push(read * length, chunk(read * length + 1, length, 1));
        }
        window
    }

    fn events(window: &Window<i64>, position: i64, max: usize) -> Vec<i64> {
        match window.look_up(position, max) {
            Lookup::Inside(page) => {
                let events: Vec<i64> = page.entries().copied().collect();
                assert_eq!(page.len(), events.len());
                events
            }
            Lookup::AtEnd | Lookup::Behind => panic!("position {position} is not inside"),
        }
    }

    #[test]
    fn a_page_runs_across_chunks_and_has_no_more_than_was_asked_for() {
        let mut window = Window::default();
        window.push(4, chunk(5, 3, 1));
        window.push(7, chunk(8, 2, 1));
        assert_eq!(events(&window, 4, 100), [5, 6, 7, 8, 9]);
        assert_eq!(events(&window, 5, 3), [6, 7, 8]);
        assert_eq!(events(&window, 7, 1), [8]);
        assert!(matches!(window.look_up(9, 1), Lookup::AtEnd));
        assert!(matches!(window.look_up(3, 1), Lookup::Behind));
        assert!(matches!(Window::<i64>::default().look_up(3, 1), Lookup::AtEnd));
    }

    #[test]
    fn a_chunk_that_does_not_follow_the_window_replaces_it() {
        let mut window = Window::default();
        window.push(4, chunk(5, 3, 1));
        window.push(20, chunk(21, 2, 1));
        assert!(matches!(window.look_up(4, 1), Lookup::Behind));
        assert_eq!(events(&window, 20, 10), [21, 22]);
        assert_eq!((window.events, window.bytes), (2, 1));
    }

    #[test]
    fn the_oldest_chunks_are_evicted_beyond_either_bound() {
        let mut window = full_window();
        assert_eq!(window.events, MAX_EVENTS);
        let end = i64::try_from(MAX_EVENTS).unwrap();
        window.push(end, chunk(end + 1, 1, 1));
        assert!(matches!(window.look_up(0, 1), Lookup::Behind), "by events");
        assert_eq!(window.events, MAX_EVENTS - READ_EVENTS + 1);

        let mut window = Window::default();
        window.push(0, chunk(1, 1, MAX_BYTES));
        assert_eq!(events(&window, 0, 1), [1], "one chunk stays, however large");
        window.push(1, chunk(2, 1, 1));
        assert!(matches!(window.look_up(0, 1), Lookup::Behind), "by bytes");
        assert_eq!((window.events, window.bytes), (1, 1));
    }

    #[test]
    fn eviction_waits_only_for_a_follower_that_needs_the_oldest_chunk_and_moves() {
        let start = Instant::now();
        let mut window = full_window();
        assert_eq!(window.eviction_delayed_until(start), None, "no follower");
        let last = i64::try_from(READ_EVENTS).unwrap();
        for behind_or_past in [-1, last] {
            window.record_position(1, behind_or_past, start);
            assert_eq!(window.eviction_delayed_until(start), None, "position {behind_or_past}");
        }
        assert!(window.record_position(1, last - 1, start), "it moved");
        assert!(!window.record_position(1, last - 1, start + STALLED_AFTER), "it did not move");
        assert_eq!(window.eviction_delayed_until(start), Some(start + STALLED_AFTER));
        assert_eq!(window.eviction_delayed_until(start + STALLED_AFTER), None, "it has stalled");
        window.remove_follower(1);
        assert_eq!(window.eviction_delayed_until(start), None, "it has gone");
    }

    #[test]
    fn eviction_waits_for_no_follower_while_there_is_room() {
        let start = Instant::now();
        let mut window = Window::default();
        window.push(0, chunk(1, 1, MAX_BYTES / 2));
        window.record_position(1, 0, start);
        assert_eq!(window.eviction_delayed_until(start), None);
        window.push(1, chunk(2, 1, 1));
        assert_eq!(
            window.eviction_delayed_until(start),
            Some(start + STALLED_AFTER),
            "more than half of the bytes"
        );
    }
}
