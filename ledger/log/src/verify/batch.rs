//! A record batch as it is stored, which may be damaged: nothing about it is taken for granted.

use chrono::{DateTime, Utc};

use crate::batch_pages::BatchRow;
use crate::chain::{self, HASH_BYTES, Hash, Link};
use crate::record_batch::Damaged;

/// A record batch, as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredBatch<'r> {
    pub(super) first_position: i64,
    pub(super) count: i32,
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) writer: &'r str,
    pub(super) events: &'r [u8],
    pub(super) hashes: &'r [u8],
}

impl<'r> StoredBatch<'r> {
    pub(super) fn of(row: &'r BatchRow) -> Self {
        Self {
            first_position: row.first_position,
            count: row.count,
            recorded_at: row.recorded_at,
            writer: &row.writer,
            events: &row.events,
            hashes: &row.hashes,
        }
    }

    /// The position of its last event, by its count.
    pub(super) fn last_position(&self) -> i64 {
        self.first_position.saturating_add(i64::from(self.count.max(1)) - 1)
    }

    /// The stored hash at `index`.
    pub(super) fn hash(&self, index: usize) -> Option<&'r Hash> {
        self.hashes.get(index * HASH_BYTES..)?.first_chunk()
    }

    /// Its text, whose lines are as many as its hashes and its count; or its damage.
    pub(super) fn text(&self) -> Result<&'r str, Damaged> {
        let text = std::str::from_utf8(self.events).map_err(|_| Damaged::Encoding)?;
        let (lines, hashes) = (text.split('\n').count(), self.hashes.len() / HASH_BYTES);
        let whole = self.hashes.len().is_multiple_of(HASH_BYTES);
        if whole && lines == hashes && usize::try_from(self.count) == Ok(lines) {
            return Ok(text);
        }
        Err(Damaged::Count { lines, hashes, count: self.count })
    }

    /// The index of the first event of a damaged batch that is not what was appended, by the hash before the batch.
    pub(super) fn first_damaged(&self, before: &Hash) -> usize {
        let mut hash = *before;
        let positions = (0..).map(|index| self.first_position.saturating_add(index));
        for (index, position) in (0..).zip(positions) {
            let Some(line) = self.events.split(|byte| *byte == b'\n').nth(index) else { return index };
            let Ok(record) = std::str::from_utf8(line) else { return index };
            hash = chain::hash(&hash, &self.link(position, record));
            if self.hash(index) != Some(&hash) {
                return index;
            }
        }
        0
    }

    /// What the hash of the event at `position` covers.
    pub(super) const fn link<'l>(&self, position: i64, record: &'l str) -> Link<'l>
    where
        'r: 'l,
    {
        Link { position, recorded_at: self.recorded_at, writer: self.writer, record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::GENESIS;

    const LINES: [&str; 3] = ["a", "bc", "d"];

    fn hashes() -> Vec<u8> {
        let mut hash = GENESIS;
        let mut hashes = Vec::new();
        for (record, position) in LINES.into_iter().zip(1..) {
            let recorded_at = DateTime::UNIX_EPOCH;
            hash = chain::hash(&hash, &Link { position, recorded_at, writer: "w", record });
            hashes.extend(hash);
        }
        hashes
    }

    fn batch<'a>(events: &'a [u8], hashes: &'a [u8], count: i32) -> StoredBatch<'a> {
        let recorded_at = DateTime::UNIX_EPOCH;
        StoredBatch { first_position: 1, count, recorded_at, writer: "w", events, hashes }
    }

    #[test]
    fn the_first_damaged_event_is_found_in_a_batch_that_cannot_be_read() {
        let hashes = hashes();
        assert_eq!(batch(b"a\nbc\nd", &hashes, 3).text(), Ok("a\nbc\nd"));
        for (events, hashes, count, first) in [
            (b"a\nbc".as_slice(), hashes.as_slice(), 3, 2),
            (b"a\nd", &hashes, 3, 1),
            (b"bc\nd", &hashes, 3, 0),
            (b"a\nx\nbc\nd", &hashes, 3, 1),
            (b"a\nbc\nd", &hashes[..64], 3, 2),
            (b"a\nbc\nd", &hashes[..65], 3, 2),
            (b"a\nbc\nd\nd", &hashes, 3, 3),
            (b"a\nb\xff\nd", &hashes, 3, 1),
            (b"a\nb\nc\nd", &hashes, 3, 1),
        ] {
            let batch = batch(events, hashes, count);
            assert!(batch.text().is_err(), "{events:?}");
            assert_eq!(batch.first_damaged(&GENESIS), first, "{events:?}");
        }
    }
}
