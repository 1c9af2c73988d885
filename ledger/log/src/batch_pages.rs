//! The record batches of a partition as they are stored, in their order, a page at a time: from `ledger.batches` or, where
//! that has them no more, from the archive. Every reader of whole partitions goes through here.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use tokio_postgres::{GenericClient, Row};

use crate::archive;
use crate::reader::Error;
use crate::record_batch::{Damaged, RecordBatch};

/// The record batches of partition $1 whose first position is above $2, in the order of their positions.
const BATCHES: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position > $2 ORDER BY first_position LIMIT $3";

/// The record batch of partition $1 that has position $2, or ends before it.
const BATCH_AT: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position <= $2 ORDER BY first_position DESC LIMIT 1";

/// The most record batches that are reported of a table that has others than the archived file.
const STRAYS: usize = 100;

/// The record batches of the table that are compared with an archived file at once.
const COMPARED: i64 = 64;

/// What is read in place of a time that no calendar has, such as `infinity`. No event was appended then, so hashes do not
/// follow from it.
const NO_TIME: DateTime<Utc> = DateTime::<Utc>::MIN_UTC;

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
            recorded_at: row.try_get("recorded_at").unwrap_or(NO_TIME),
            writer: row.try_get("writer")?,
            events: row.try_get("events")?,
            hashes: row.try_get("hashes")?,
        })
    }

    /// The position of its last event, by its count.
    pub(crate) fn last_position(&self) -> i64 {
        self.first_position.saturating_add(i64::from(self.count.max(1)) - 1)
    }

    /// The record batch, unless it is damaged.
    pub(crate) fn decode(self) -> Result<RecordBatch, Error> {
        let Self { partition, first_position, count, recorded_at, writer, events, hashes } = self;
        if recorded_at == NO_TIME {
            return Err(Error::Damaged { partition, first_position, damaged: Damaged::Time });
        }
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
    /// Its last position.
    end: i64,
}

/// Record batches that follow each other. Those of an archived file are a page.
#[derive(Debug, Default)]
pub(crate) struct BatchPage {
    pub(crate) batches: Vec<BatchRow>,
    /// The archived file that the page comes from.
    pub(crate) file: Option<ArchivedFile>,
}

/// A file of the archive that was read.
#[derive(Debug)]
pub(crate) struct ArchivedFile {
    pub(crate) object: String,
    /// The first position that it should have.
    pub(crate) first_position: i64,
    /// Why it is not the file that was archived. It may have fewer or other batches then.
    pub(crate) damage: Option<String>,
    /// The first positions of the record batches of the table within the range that the file does not have: at most
    /// [`STRAYS`]. None are looked for if the file is damaged.
    pub(crate) strays: Vec<i64>,
}

impl BatchPage {
    /// Whether the log ends here.
    pub(crate) const fn is_end(&self) -> bool {
        self.batches.is_empty() && self.file.is_none()
    }
}

impl BatchPages {
    /// Before the first batch.
    pub(crate) const fn new(partition: Partition) -> Self {
        Self::behind(partition, 0)
    }

    /// After the batch that ends at position `end`.
    pub(crate) const fn behind(partition: Partition, end: i64) -> Self {
        Self { partition, begin: end, end }
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
        let end = if continues { batch.first_position - 1 } else { batch.last_position() };
        Ok(Some((Self::behind(partition, end), batch)))
    }

    /// About `limit` batches that follow at most, or those of a file of the archive. They follow each other; the first one may
    /// follow after a gap.
    pub(crate) async fn next(&mut self, client: &impl GenericClient, limit: i64) -> Result<BatchPage, Error> {
        let expected = self.end.saturating_add(1);
        let mut batches = self.stored(client, limit).await?;
        let is_gap =
            |batches: &[BatchRow]| batches.first().is_some_and(|batch| batch.first_position > expected);
        if batches.is_empty() || is_gap(&batches) {
            if let Some(page) = self.archived(client).await? {
                return Ok(page);
            }
            // A range may have been restored after the table was read, and before the archives were.
            if is_gap(&batches) {
                batches = self.stored(client, limit).await?;
            }
        }
        // A gap ends the page: the archive may have what is missing.
        let gap = batches
            .windows(2)
            .position(|pair| pair[1].first_position > pair[0].last_position().saturating_add(1));
        batches.truncate(gap.map_or(batches.len(), |index| index + 1));
        if let Some(last) = batches.last() {
            (self.begin, self.end) = (last.first_position, last.last_position());
        }
        Ok(BatchPage { batches, file: None })
    }

    /// The batches that the table has next.
    async fn stored(&self, client: &impl GenericClient, limit: i64) -> Result<Vec<BatchRow>, Error> {
        let rows = client.query(BATCHES, &[&self.partition.number(), &self.begin, &limit]).await?;
        Ok(rows.iter().map(BatchRow::of).collect::<Result<_, _>>()?)
    }

    /// The batches of the archived file that has the next position; `None` if it is not archived.
    async fn archived(&mut self, client: &impl GenericClient) -> Result<Option<BatchPage>, Error> {
        let expected = self.end.saturating_add(1);
        let found = archive::containing(client, self.partition, expected).await?;
        let Some((range, content)) = found else { return Ok(None) };
        let batches = content.batches.iter().filter(|batch| batch.first_position >= expected);
        let batches: Vec<_> = batches.cloned().collect();
        archive::forget(&range);
        let strays = match &content.damage {
            Some(_) => Vec::new(),
            None => self.strays(client, &batches, range.last_position).await?,
        };
        (self.begin, self.end) = (range.last_position, range.last_position);
        let (object, first_position, damage) = (range.object, range.first_position, content.damage);
        Ok(Some(BatchPage { batches, file: Some(ArchivedFile { object, first_position, damage, strays }) }))
    }

    /// The first positions of the batches of the table from the next position to `last` that are not among `archived`. A
    /// command that was stopped leaves the archived ones in the table; nothing else may be there.
    async fn strays(
        &self,
        client: &impl GenericClient,
        archived: &[BatchRow],
        last: i64,
    ) -> Result<Vec<i64>, Error> {
        let (mut strays, mut place) = (Vec::new(), Self { begin: self.end, ..*self });
        while strays.len() < STRAYS {
            let stored = place.stored(client, COMPARED).await?;
            for batch in stored.iter().take_while(|batch| batch.first_position <= last) {
                let found = archived.binary_search_by_key(&batch.first_position, |one| one.first_position);
                if !found.is_ok_and(|index| archived[index] == *batch) {
                    strays.push(batch.first_position);
                }
            }
            match stored.last() {
                Some(batch) if batch.first_position < last => place.begin = batch.first_position,
                Some(_) | None => break,
            }
        }
        strays.truncate(STRAYS);
        Ok(strays)
    }
}

/// The batch of `partition` that has `position`, or else the last one that ends before it.
pub(crate) async fn holding(
    client: &impl GenericClient,
    partition: Partition,
    position: i64,
) -> Result<Option<BatchRow>, Error> {
    let found = stored_at(client, partition, position).await?;
    if found.as_ref().is_some_and(|batch| batch.last_position() >= position) {
        return Ok(found);
    }
    match archived_after(client, partition, position - 1, position).await? {
        Some(archived) => Ok(archived.into_iter().next()),
        // A range may have been restored after the table was read, and before the archives were.
        None => stored_at(client, partition, position).await,
    }
}

/// The batch of the table that has `position`, or else the last one that ends before it.
async fn stored_at(
    client: &impl GenericClient,
    partition: Partition,
    position: i64,
) -> Result<Option<BatchRow>, Error> {
    let row = client.query_opt(BATCH_AT, &[&partition.number(), &position]).await?;
    Ok(row.map(|row| BatchRow::of(&row)).transpose()?)
}

/// The batches of the archived file that has the position after `position`, from there on, that begin at `end` or before.
/// `None` if it is not archived.
pub(crate) async fn archived_after(
    client: &impl GenericClient,
    partition: Partition,
    position: i64,
    end: i64,
) -> Result<Option<Vec<BatchRow>>, Error> {
    let Some((range, content)) = archive::containing(client, partition, position + 1).await? else {
        return Ok(None);
    };
    if let Some(damage) = content.damage {
        let (first_position, object) = (range.first_position, range.object);
        return Err(Error::DamagedArchive { first_position, object, damage });
    }
    let batches = content.batches.iter().skip_while(|batch| batch.last_position() <= position);
    Ok(Some(batches.take_while(|batch| batch.first_position <= end).cloned().collect()))
}
