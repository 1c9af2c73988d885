//! Reads a partition of the log in order, and verifies that its positions have no gap and that its hashes chain. Memory is
//! bounded by a page of record batches.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use tokio_postgres::GenericClient;

use super::Error;
use super::findings::{Findings, Place};
use crate::batch_pages::{ArchivedFile, BatchPages};
use crate::chain::{self, GENESIS, Hash, Link};
use crate::partitions::{self, Headless};
use crate::reader;
use crate::record_batch::RecordBatch;
use crate::verify::Head;

/// The head of each partition.
const HEADS: &str = "SELECT partition, position, hash FROM ledger.heads ORDER BY partition";

/// Record batches that are read at once: at most 512 events each.
const PAGE: i64 = 64;

/// An event as it stands in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) place: Place,
    /// The exact text.
    pub(super) text: &'a str,
    /// When it was appended.
    pub(super) recorded_at: DateTime<Utc>,
    /// The process that appended it.
    pub(super) writer: &'a str,
    /// The stored hash.
    pub(super) hash: &'a [u8],
}

/// Is given each event of a partition.
pub(super) trait Visitor {
    /// Where the reader adds what it finds.
    fn findings(&mut self) -> &mut Findings;

    /// The next event, which is read whether or not its hash is right.
    fn visit(&mut self, line: &Line<'_>) -> Result<(), Error>;
}

/// The part of a partition that was read.
pub(super) struct PartitionReader {
    pub(super) partition: Partition,
    pages: BatchPages,
    /// The position of the last event.
    pub(super) position: i64,
    pub(super) hash: Hash,
}

impl PartitionReader {
    /// Nothing was read yet.
    pub(super) const fn new(partition: Partition) -> Self {
        Self { partition, pages: BatchPages::new(partition), position: 0, hash: GENESIS }
    }

    /// Reads and verifies the next batches, and gives each event up to position `end` to `visitor`; `false` if there are
    /// none.
    pub(super) async fn read_page(
        &mut self,
        client: &impl GenericClient,
        end: i64,
        visitor: &mut impl Visitor,
    ) -> Result<bool, Error> {
        if self.position >= end {
            return Ok(false);
        }
        let page = self.pages.next(client, PAGE).await?;
        let is_end = page.is_end();
        if let Some(ArchivedFile { object, first_position: _, damage, strays }) = page.file {
            if let Some(damage) = damage {
                visitor.findings().find(|| format!("the archived file {object}: {damage}"));
            }
            for position in strays {
                let place = Place { partition: self.partition, position };
                visitor
                    .findings()
                    .find(|| format!("{place}: the table has another record batch than {object}"));
            }
        }
        for row in page.batches {
            if row.first_position > end {
                return Ok(false);
            }
            let (last_position, last_hash) = (row.last_position(), row.hashes.last_chunk().copied());
            match row.decode() {
                Ok(batch) => self.verify(&batch, end, visitor)?,
                Err(reader::Error::Damaged { first_position, damaged, .. }) => {
                    let place = Place { partition: self.partition, position: first_position };
                    visitor.findings().find(|| format!("{place}: the record batch is damaged: {damaged}"));
                    self.position = last_position;
                    self.hash = last_hash.unwrap_or(self.hash);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(!is_end)
    }

    /// Verifies a batch, and gives its events to `visitor`.
    fn verify(&mut self, batch: &RecordBatch, end: i64, visitor: &mut impl Visitor) -> Result<(), Error> {
        let partition = self.partition;
        let at = |position| Place { partition, position };
        let (expected, found) = (self.position + 1, batch.first_position());
        let findings = visitor.findings();
        match found - expected {
            0 => {}
            ..0 => {
                findings
                    .find(|| format!("{}: a record batch begins before the one before it ends", at(found)));
            }
            1 => findings.find(|| format!("{}: the event is missing", at(expected))),
            _ => findings.find(|| {
                format!(
                    "partition {partition}, positions {expected} to {}: the events are missing",
                    found - 1
                )
            }),
        }
        for (index, position) in (0..batch.len()).zip(found..=end) {
            let record = batch.line(index);
            let link = Link { position, recorded_at: batch.recorded_at(), writer: batch.writer(), record };
            self.hash = chain::hash(&self.hash, &link);
            let hash = batch.hash(index);
            if hash != self.hash {
                visitor.findings().find(|| {
                    let place = at(position);
                    format!("{place}: the hash does not follow from the event and the previous hash")
                });
                self.hash = hash.try_into().unwrap_or(self.hash);
            }
            visitor.visit(&Line {
                place: at(position),
                text: record,
                recorded_at: batch.recorded_at(),
                writer: batch.writer(),
                hash,
            })?;
        }
        self.position = batch.last_position().min(end);
        Ok(())
    }

    /// Compares what was read with the head of the partition.
    pub(super) fn compare(&self, (position, hash): (i64, &[u8]), findings: &mut Findings) {
        let (partition, last) = (self.partition, self.position);
        if position != last {
            findings.find(|| {
                format!("partition {partition}: the head is at position {position}, the last event at {last}")
            });
        } else if hash != self.hash {
            findings.find(|| {
                format!(
                    "partition {partition}: the head's hash is not that of the last event, at position {last}"
                )
            });
        }
    }
}

/// The ends of the partitions, read at once.
pub(super) struct Ends(Vec<(Partition, i64, Vec<u8>)>);

impl Ends {
    /// The present heads.
    pub(super) async fn read(client: &impl GenericClient) -> Result<Self, Error> {
        let rows = client.query(HEADS, &[]).await?;
        if rows.is_empty() {
            return Err(Error::NoPartitions);
        }
        for headless in partitions::headless(client).await? {
            match headless {
                Headless::Missing(partition) => return Err(Error::Headless { partition }),
                // Nothing leads to its batches.
                Headless::Stray(_) => {}
            }
        }
        let heads = rows.iter().map(|row| {
            let partition = Partition::new(row.try_get("partition")?);
            Ok((partition, row.try_get("position")?, row.try_get("hash")?))
        });
        Ok(Self(heads.collect::<Result<_, tokio_postgres::Error>>()?))
    }

    /// All partitions.
    pub(super) fn partitions(&self) -> impl Iterator<Item = Partition> + '_ {
        self.0.iter().map(|(partition, ..)| *partition)
    }

    /// The last position of a partition; zero if there is none.
    pub(super) fn last(&self, partition: Partition) -> i64 {
        self.0.iter().find(|(of, ..)| *of == partition).map_or(0, |(_, last, _)| *last)
    }

    /// An error unless the partition has come to `position`.
    pub(super) fn has(&self, partition: Partition, position: i64) -> Result<(), Error> {
        let head = self.0.iter().find(|(of, ..)| *of == partition);
        let (_, last, _) = head.ok_or(Error::NoSuchPartition { partition })?;
        if position > *last {
            return Err(Error::NoSuchPosition { partition, position, last: *last });
        }
        Ok(())
    }

    /// Reads and verifies a partition to its end, or to the position `until` before it. Returns the last event read.
    pub(super) async fn read_partition(
        &self,
        client: &impl GenericClient,
        partition: Partition,
        until: Option<i64>,
        visitor: &mut impl Visitor,
    ) -> Result<Head, Error> {
        let head = self.0.iter().find(|(of, ..)| *of == partition);
        let (_, last, hash) = head.ok_or(Error::NoSuchPartition { partition })?;
        let end = match until {
            Some(position) if position > *last => {
                return Err(Error::NoSuchPosition { partition, position, last: *last });
            }
            Some(position) => position,
            None => *last,
        };
        let mut read = PartitionReader::new(partition);
        loop {
            match read.read_page(client, end, visitor).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(error.after(std::mem::take(visitor.findings()))),
            }
        }
        if end == *last {
            read.compare((*last, hash), visitor.findings());
        } else if read.position != end {
            visitor.findings().find(|| format!("partition {partition}: there is no position {end}"));
        }
        Ok(Head { partition, position: read.position, hash: farthing_core::secret::hex(&read.hash) })
    }
}
