//! Pages: the events that a follower gets at once.

use std::sync::Arc;

use farthing_core::partition::Partition;

use crate::reader::Entry;
use crate::record_batch::RecordBatch;

/// Record batches of one partition, each with the index of the first event that is wanted.
pub(crate) type Batches = Vec<(Arc<RecordBatch>, usize)>;

/// An event that may be the last one of its record batch.
pub(super) trait InBatch {
    /// Whether it is.
    fn ends_batch(&self) -> bool;
}

impl InBatch for Entry {
    fn ends_batch(&self) -> bool {
        self.ends_batch()
    }
}

/// Consecutive events of one partition that were read at once; never empty.
#[derive(Debug)]
pub(super) struct Chunk<E = Entry> {
    pub(super) first: i64,
    pub(super) entries: Vec<E>,
    pub(super) bytes: usize,
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
    pub(super) fn last(&self) -> i64 {
        self.first + i64::try_from(self.entries.len()).unwrap_or(i64::MAX) - 1
    }
}

/// Consecutive events of one chunk.
#[derive(Debug)]
struct Run<E> {
    chunk: Arc<Chunk<E>>,
    start: usize,
    end: usize,
}

/// Events of one or more partitions: those of a partition follow each other without a gap, in order.
#[derive(Debug)]
pub struct Page<E = Entry> {
    runs: Vec<Run<E>>,
}

impl<E> Default for Page<E> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<E> Page<E> {
    /// Adds the events of `chunk` after `position`, about `max` of them: no record batch is divided. Returns how many.
    pub(super) fn add(&mut self, chunk: &Arc<Chunk<E>>, position: i64, max: usize) -> usize
    where
        E: InBatch,
    {
        let start = usize::try_from(position + 1 - chunk.first).unwrap_or(0);
        let rest = chunk.entries.get(start..).unwrap_or_default();
        let Some(last) = rest.len().min(max).checked_sub(1) else { return 0 };
        let end = rest[last..].iter().position(InBatch::ends_batch);
        let count = end.map_or(rest.len(), |end| last + end + 1);
        self.runs.push(Run { chunk: Arc::clone(chunk), start, end: start + count });
        count
    }

    /// The events: those of a partition in order.
    pub fn entries(&self) -> impl Iterator<Item = &E> {
        self.runs().flatten()
    }

    /// The events, in runs of one partition each.
    pub fn runs(&self) -> impl Iterator<Item = &[E]> {
        self.runs.iter().map(|run| &run.chunk.entries[run.start..run.end])
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Whether it has no event.
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

impl Page {
    /// The record batches of the events, each once and whole, and the index of the first event that is in the
    /// page. The last batch of a partition may have events beyond the end of the page.
    pub(super) fn batches(&self) -> Batches {
        let mut last: Option<(Partition, i64)> = None;
        let batches = self.entries().filter_map(|entry| {
            let (batch, index) = entry.batch();
            last.is_none_or(|last| (entry.partition(), entry.position()) > last).then(|| {
                last = Some((batch.partition(), batch.last_position()));
                (Arc::clone(batch), index)
            })
        });
        batches.collect()
    }
}
