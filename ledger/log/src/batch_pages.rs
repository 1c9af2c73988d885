//! The record batches of a partition as they are stored, in their order, a page at a time. Every reader of whole
//! partitions goes through here, so this file alone knows where batches are kept.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use tokio_postgres::{GenericClient, Row};

use crate::reader::Error;
use crate::record_batch::RecordBatch;

/// The record batches of partition $1 whose first position is above $2, in the order of their positions.
const BATCHES: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position > $2 ORDER BY first_position LIMIT $3";

/// The record batch of partition $1 that has position $2, or ends before it.
const BATCH_AT: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position <= $2 ORDER BY first_position DESC LIMIT 1";

/// A record batch as it is stored. It may be damaged: nothing about it is taken for granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchRow {
    pub(crate) partition: Partition,
    pub(crate) first_position: i64,
    pub(crate) count: i32,
    pub(crate) recorded_at: DateTime<Utc>,
    pub(crate) writer: String,
    pub(crate) events: Vec<u8>,
    pub(crate) hashes: Vec<u8>,
}

impl BatchRow {
    /// A row of `ledger.batches`.
    pub(crate) fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            partition: Partition::new(row.try_get("partition")?),
            first_position: row.try_get("first_position")?,
            count: row.try_get("count")?,
            recorded_at: row.try_get("recorded_at")?,
            writer: row.try_get("writer")?,
            events: row.try_get("events")?,
            hashes: row.try_get("hashes")?,
        })
    }

    /// The position of its last event, by its count.
    pub(crate) fn last_position(&self) -> i64 {
        self.first_position + i64::from(self.count.max(1)) - 1
    }

    /// The record batch, unless it is damaged.
    pub(crate) fn decode(self) -> Result<RecordBatch, Error> {
        let Self { partition, first_position, count, recorded_at, writer, events, hashes } = self;
        let batch = RecordBatch::new((partition, first_position), count, recorded_at, writer, events, hashes);
        batch.map_err(|damaged| Error::Damaged { partition, first_position, damaged })
    }
}

/// The place in a partition up to which record batches were read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPages {
    partition: Partition,
    /// The first position of the last batch.
    begin: i64,
}

impl BatchPages {
    /// Before the first batch.
    pub(crate) const fn new(partition: Partition) -> Self {
        Self { partition, begin: 0 }
    }

    /// Before the batch that has `position` or, if that is the last one of its batch, after it. `None` if there is no such
    /// batch. Returns the batch too.
    pub(crate) async fn after(
        client: &impl GenericClient,
        partition: Partition,
        position: i64,
    ) -> Result<Option<(Self, BatchRow)>, Error> {
        let Some(batch) = holding(client, partition, position).await? else { return Ok(None) };
        let continues = batch.last_position() > position;
        Ok(Some((Self { partition, begin: batch.first_position - i64::from(continues) }, batch)))
    }

    /// At most about `limit` batches that follow, whether or not they follow without a gap. None at the end of the log.
    pub(crate) async fn next(
        &mut self,
        client: &impl GenericClient,
        limit: i64,
    ) -> Result<Vec<BatchRow>, Error> {
        let rows = client.query(BATCHES, &[&self.partition.number(), &self.begin, &limit]).await?;
        let batches = rows.iter().map(BatchRow::of).collect::<Result<Vec<_>, _>>()?;
        if let Some(last) = batches.last() {
            self.begin = last.first_position;
        }
        Ok(batches)
    }
}

/// The batch of `partition` that has `position`, or else the last one that ends before it.
pub(crate) async fn holding(
    client: &impl GenericClient,
    partition: Partition,
    position: i64,
) -> Result<Option<BatchRow>, Error> {
    let row = client.query_opt(BATCH_AT, &[&partition.number(), &position]).await?;
    Ok(row.map(|row| BatchRow::of(&row)).transpose()?)
}
