//! A record batch: the events of one commit, as the log stores them and the feed publishes them.

use std::ops::Range;

use chrono::{DateTime, Utc};

use farthing_core::partition::Partition;

use crate::chain::{self, HASH_BYTES, Hash, Link};

/// Why a stored batch is no record batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// Its bytes are not text.
    #[error("the events are not UTF-8")]
    Encoding,
    /// Its time is none of the calendar.
    #[error("it has no time")]
    Time,
    /// Its lines, its hashes and its count do not agree.
    #[error("{lines} events and {hashes} hashes, where {count} were appended")]
    Count {
        /// The number of lines.
        lines: usize,
        /// The number of hashes.
        hashes: usize,
        /// The number of events that were appended.
        count: i32,
    },
}

/// The events of one commit.
#[derive(Debug)]
pub struct RecordBatch {
    partition: Partition,
    first_position: i64,
    recorded_at: DateTime<Utc>,
    writer: String,
    events: String,
    /// The end of each line.
    ends: Vec<usize>,
    hashes: Vec<u8>,
}

impl RecordBatch {
    /// The batch of `count` events, each a line of `events`.
    pub(crate) fn new(
        (partition, first_position): (Partition, i64),
        count: i32,
        recorded_at: DateTime<Utc>,
        writer: String,
        events: Vec<u8>,
        hashes: Vec<u8>,
    ) -> Result<Self, Damaged> {
        let events = String::from_utf8(events).map_err(|_| Damaged::Encoding)?;
        let mut ends: Vec<usize> = events.match_indices('\n').map(|(at, _)| at).collect();
        ends.push(events.len());
        let whole = hashes.len().is_multiple_of(HASH_BYTES);
        let (lines, found) = (ends.len(), hashes.len() / HASH_BYTES);
        if !whole || found != lines || usize::try_from(count) != Ok(lines) {
            return Err(Damaged::Count { lines, hashes: found, count });
        }
        Ok(Self { partition, first_position, recorded_at, writer, events, ends, hashes })
    }

    /// The partition of its events.
    pub const fn partition(&self) -> Partition {
        self.partition
    }

    /// The position of the first event.
    pub const fn first_position(&self) -> i64 {
        self.first_position
    }

    /// The position of the last event.
    pub fn last_position(&self) -> i64 {
        self.first_position.saturating_add(i64::try_from(self.ends.len()).unwrap_or(i64::MAX) - 1)
    }

    /// When it was appended.
    pub const fn recorded_at(&self) -> DateTime<Utc> {
        self.recorded_at
    }

    /// The process that appended it.
    pub fn writer(&self) -> &str {
        &self.writer
    }

    /// The number of events.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Always `false`.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The line of the event at `index`.
    pub fn line(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] + 1 };
        &self.events[start..self.ends[index]]
    }

    /// The lines of the events at `indexes`, separated by line feeds.
    pub(crate) fn lines(&self, indexes: Range<usize>) -> &str {
        let Some(last) = indexes.clone().next_back() else { return "" };
        let start = if indexes.start == 0 { 0 } else { self.ends[indexes.start - 1] + 1 };
        &self.events[start..self.ends[last]]
    }

    /// The hashes of the events at `indexes`, one after the other.
    pub(crate) fn hashes(&self, indexes: Range<usize>) -> &[u8] {
        &self.hashes[indexes.start * HASH_BYTES..indexes.end * HASH_BYTES]
    }

    /// The hash of the event at `index`.
    pub fn hash(&self, index: usize) -> &[u8] {
        &self.hashes[index * HASH_BYTES..][..HASH_BYTES]
    }

    /// The hash of the event at `index`, as an array.
    pub(crate) fn hash_array(&self, index: usize) -> Hash {
        self.hash(index).try_into().expect("a hash has its length")
    }

    /// Whether the event at `index` is in the chain of the one before it if that has the hash `previous`.
    pub(crate) fn follows(&self, index: usize, previous: &Hash) -> bool {
        if index > 0 {
            return self.hash(index - 1) == previous;
        }
        let link = Link {
            position: self.first_position,
            recorded_at: self.recorded_at,
            writer: &self.writer,
            record: self.line(0),
        };
        chain::hash(previous, &link) == self.hash(0)
    }

    /// The position of the event at `index`, or the one after the batch.
    pub(crate) fn position_of(&self, index: usize) -> i64 {
        self.first_position.saturating_add(i64::try_from(index).unwrap_or(i64::MAX))
    }

    /// The index of the event at `position`.
    pub(crate) fn index_of(&self, position: i64) -> Option<usize> {
        usize::try_from(position - self.first_position).ok().filter(|index| *index < self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: Partition = Partition::new(3);

    fn batch(events: &str, hashes: usize, count: i32) -> Result<RecordBatch, Damaged> {
        let hashes = (0..hashes).map(|at| u8::try_from(at / HASH_BYTES).unwrap()).collect();
        RecordBatch::new((PARTITION, 7), count, DateTime::UNIX_EPOCH, "w".to_owned(), events.into(), hashes)
    }

    #[test]
    fn lines_and_hashes_are_found_by_their_index() {
        let batch = batch("a\nbc\nd", 96, 3).unwrap();
        assert_eq!((batch.first_position(), batch.last_position(), batch.len()), (7, 9, 3));
        assert_eq!([0, 1, 2].map(|at| batch.line(at)), ["a", "bc", "d"]);
        assert_eq!(batch.hash(1), [1; 32]);
        assert_eq!(
            [0..3, 1..3, 1..2, 2..2].map(|indexes| batch.lines(indexes)),
            ["a\nbc\nd", "bc\nd", "bc", ""]
        );
        assert_eq!(batch.hashes(1..3), [[1; 32], [2; 32]].concat());
        assert_eq!([6, 7, 9, 10].map(|position| batch.index_of(position)), [None, Some(0), Some(2), None]);
    }

    #[test]
    fn a_batch_whose_lines_hashes_and_count_disagree_is_damaged() {
        for (events, hashes, count) in
            [("a\nb", 64, 3), ("a\nb", 32, 2), ("a\nb", 65, 2), ("a", 64, 2), ("a", 32, -1)]
        {
            assert!(matches!(batch(events, hashes, count), Err(Damaged::Count { .. })), "{events} {hashes}");
        }
        let binary =
            RecordBatch::new((PARTITION, 7), 1, DateTime::UNIX_EPOCH, String::new(), vec![0xff], vec![0; 32]);
        assert_eq!(binary.unwrap_err(), Damaged::Encoding);
    }
}
