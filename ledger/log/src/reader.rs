//! Reads the log in order, each partition for itself. Invariant: the positions of a partition have no gap; a gap is an
//! error and is never skipped.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::archive::StoreError;
use super::batch_pages::{self, BatchRow};
use super::connect::{self, Role, redacted};
use super::positions::Positions;
use super::record::{self, Unreadable};
use super::record_batch::{Damaged, RecordBatch};
use farthing_core::event::Recorded;
use farthing_core::partition::Partition;

/// The record batches with the events of partition $1 after position $2, as many as have an event up to position
/// $2 + $3, up to the one with which they have $4 bytes. The length of a batch is known without reading it.
pub const READ: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM (
    SELECT partition, first_position, count, recorded_at, writer, events, hashes,
        sum(octet_length(events)) OVER (ORDER BY first_position ROWS UNBOUNDED PRECEDING) - octet_length(events) AS before
    FROM ledger.batches
    WHERE partition = $1 AND first_position <= $2::bigint + $3::bigint AND first_position > $2 + 1 - count
        AND first_position >= coalesce((
            SELECT b.first_position FROM ledger.batches AS b
            WHERE b.partition = $1 AND b.first_position <= $2 + 1 ORDER BY b.first_position DESC LIMIT 1), 1)) AS range
WHERE before < $4::bigint
ORDER BY first_position";

/// The bytes with which a read of events ends. Events are as long as merchants made them, and all of a read are in memory.
pub(crate) const READ_BYTES: i64 = 16 * 1024 * 1024;

/// The first position of the first record batch after position $2.
const NEXT: &str = "\
SELECT first_position FROM ledger.batches WHERE partition = $1 AND first_position > $2 ORDER BY first_position LIMIT 1";

/// The position of the newest event of partition $1.
pub const READ_HEAD: &str = "SELECT position FROM ledger.heads WHERE partition = $1";

/// The same, with its hash.
pub const READ_HEAD_WITH_HASH: &str = "SELECT position, hash FROM ledger.heads WHERE partition = $1";

/// The position of the newest event of each partition.
const READ_HEADS: &str = "SELECT partition, position FROM ledger.heads ORDER BY partition";

/// The positions of the facts with the keys $2, and their batches; null if a batch is not in the table.
const READ_FACTS: &str = "\
SELECT f.position, b.partition, b.first_position, b.count, b.recorded_at, b.writer, b.events, b.hashes
FROM ledger.facts AS f
LEFT JOIN LATERAL (
    SELECT l.partition, l.first_position, l.count, l.recorded_at, l.writer, l.events, l.hashes
    FROM ledger.batches AS l
    WHERE l.partition = f.partition AND l.first_position <= f.position ORDER BY l.first_position DESC LIMIT 1) AS b
    ON b.first_position > f.position - b.count
WHERE f.partition = $1 AND f.key = ANY($2::text[]) ORDER BY f.position";

/// How long a statement may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Events decoded before the task yields to others.
const EVENTS_BETWEEN_YIELDS: usize = 256;

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer.
    #[error("the log cannot be read: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
    /// Postgres does not answer, and its connection stays open.
    #[error("the log cannot be read: Postgres did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Unanswered,
    /// An event is missing; the log is damaged.
    #[error("partition {partition} of the log has a gap: position {expected} is missing, {found} follows")]
    Gap {
        /// The partition.
        partition: Partition,
        /// The position that is missing.
        expected: i64,
        /// The position that was read instead.
        found: i64,
    },
    /// An event is in the archive, and this process knows none.
    #[error(
        "positions {first} to {last} of partition {partition} are archived at {location}: name that archive with \
         --archive or FARTHING_ARCHIVE"
    )]
    Archived {
        /// The partition.
        partition: Partition,
        /// The first position of the archived range.
        first: i64,
        /// Its last position.
        last: i64,
        /// Where it was written.
        location: String,
    },
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] StoreError),
    /// A file of the archive is not what was archived.
    #[error("the archived file {object}: {damage}")]
    DamagedArchive {
        /// The first position that it should have.
        first_position: i64,
        /// Its name.
        object: String,
        /// What is wrong.
        damage: String,
    },
    /// An event does not follow the one that was read before it.
    #[error(
        "the event at position {position} of partition {partition} is not in the chain of the one that was read before it: \
         the log is another one, or was changed"
    )]
    OtherLog {
        /// The partition.
        partition: Partition,
        /// The position.
        position: i64,
    },
    /// A record batch was changed.
    #[error("the record batch at position {first_position} of partition {partition} is damaged: {damaged}")]
    Damaged {
        /// The partition.
        partition: Partition,
        /// The position of its first event.
        first_position: i64,
        /// The damage.
        damaged: Damaged,
    },
    /// This program cannot read an event that it must know.
    #[error("the event at position {position} of partition {partition} cannot be read: {unreadable}")]
    Unreadable {
        /// The partition.
        partition: Partition,
        /// The position.
        position: i64,
        /// The cause.
        unreadable: Unreadable,
    },
}

impl Error {
    /// Whether the events are not what was appended. Otherwise the database or the archive is out of reach.
    pub const fn is_of_the_events(&self) -> bool {
        match self {
            Self::Gap { .. }
            | Self::DamagedArchive { .. }
            | Self::OtherLog { .. }
            | Self::Damaged { .. }
            | Self::Unreadable { .. } => true,
            Self::Database(_) | Self::Unanswered | Self::Archived { .. } | Self::Archive(_) => false,
        }
    }
}

/// One event of the log: its record in its batch, and the decoded event.
#[derive(Debug)]
pub struct Entry {
    position: i64,
    recorded: Result<Recorded, Unreadable>,
    batch: Arc<RecordBatch>,
    index: usize,
}

impl Entry {
    pub(crate) fn read(batch: &Arc<RecordBatch>, index: usize) -> Self {
        let (partition, position) = (batch.partition(), batch.position_of(index));
        let recorded = record::decode(batch.line(index)).map(|fact| Recorded { partition, position, fact });
        Self { position, recorded, batch: Arc::clone(batch), index }
    }

    /// The event's partition.
    pub fn partition(&self) -> Partition {
        self.batch.partition()
    }

    /// The event's position in its partition.
    pub const fn position(&self) -> i64 {
        self.position
    }

    /// The decoded event, or why this program cannot read it.
    pub const fn recorded(&self) -> Result<&Recorded, &Unreadable> {
        self.recorded.as_ref()
    }

    /// The exact text of its line.
    pub fn line(&self) -> &str {
        self.batch.line(self.index)
    }

    /// Whether it is the last event of its record batch.
    pub fn ends_batch(&self) -> bool {
        self.index + 1 == self.batch.len()
    }

    /// Its record batch, and its index there.
    pub(crate) const fn batch(&self) -> (&Arc<RecordBatch>, usize) {
        (&self.batch, self.index)
    }
}

/// Decodes `batches`, each with the index of its first event after `position`, up to the first gap: the archive may have what
/// follows. A gap before the first one is an error.
fn in_order(batches: Vec<BatchRow>, position: i64) -> Result<Vec<(Arc<RecordBatch>, usize)>, Error> {
    let mut decoded = Vec::new();
    let mut expected = position + 1;
    for batch in batches {
        let batch = batch.decode()?;
        let (partition, found) = (batch.partition(), batch.first_position());
        let Some(first) = batch.index_of(expected) else {
            if decoded.is_empty() {
                return Err(Error::Gap { partition, expected, found });
            }
            break;
        };
        expected = batch.last_position() + 1;
        decoded.push((Arc::new(batch), first));
    }
    Ok(decoded)
}

/// Reads a record batch from its row.
pub(crate) fn batch(row: &Row) -> Result<RecordBatch, Error> {
    BatchRow::of(row)?.decode()
}

/// Decodes the event at `position` of its batch.
fn decode(batch: &RecordBatch, position: i64) -> Result<Recorded, Error> {
    let (partition, found) = (batch.partition(), batch.first_position());
    let index = batch.index_of(position).ok_or(Error::Gap { partition, expected: position, found })?;
    let fact = record::decode(batch.line(index));
    let fact = fact.map_err(|unreadable| Error::Unreadable { partition, position, unreadable })?;
    Ok(Recorded { partition, position, fact })
}

/// The events of a partition with the keys in `keys`, in their order. The log indexes the facts of everything but
/// calls.
pub async fn find(client: &Client, partition: Partition, keys: &[&str]) -> Result<Vec<Recorded>, Error> {
    let rows = client.query(READ_FACTS, &[&partition.number(), &keys]).await?;
    let mut found = Vec::new();
    for row in &rows {
        let position = row.try_get("position")?;
        found.push(decode(&batch_of_fact(client, partition, row).await?, position)?);
    }
    Ok(found)
}

/// The same without the events that are in the archive, which a gateway does not read.
pub async fn find_in_table(
    client: &Client,
    partition: Partition,
    keys: &[&str],
) -> Result<Vec<Recorded>, Error> {
    let rows = client.query(READ_FACTS, &[&partition.number(), &keys]).await?;
    let mut found = Vec::new();
    for row in &rows {
        if row.try_get::<_, Option<i64>>("first_position")?.is_some() {
            found.push(decode(&batch(row)?, row.try_get("position")?)?);
        }
    }
    Ok(found)
}

/// The batch of a row of [`READ_FACTS`]; from the archive if it is not in the table.
async fn batch_of_fact(client: &Client, partition: Partition, row: &Row) -> Result<RecordBatch, Error> {
    if row.try_get::<_, Option<i64>>("first_position")?.is_some() {
        return batch(row);
    }
    let position = row.try_get("position")?;
    let missing = Error::Gap { partition, expected: position, found: 0 };
    batch_at(client, partition, position).await?.ok_or(missing)
}

/// The position of the event with `key`.
pub async fn find_position(client: &Client, partition: Partition, key: &str) -> Result<Option<i64>, Error> {
    const FIND: &str = "SELECT position FROM ledger.facts WHERE partition = $1 AND key = $2";
    let row = client.query_opt(FIND, &[&partition.number(), &key]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// The event with `key` and those that follow it in the same commit.
pub async fn find_commit(client: &Client, partition: Partition, key: &str) -> Result<Vec<Recorded>, Error> {
    let Some(row) = client.query_opt(READ_FACTS, &[&partition.number(), &[key].as_slice()]).await? else {
        return Ok(Vec::new());
    };
    let batch = batch_of_fact(client, partition, &row).await?;
    (row.try_get("position")?..=batch.last_position()).map(|position| decode(&batch, position)).collect()
}

/// The event at `position`.
pub async fn event_at(
    client: &Client,
    partition: Partition,
    position: i64,
) -> Result<Option<Recorded>, Error> {
    let Some(batch) = batch_at(client, partition, position).await? else { return Ok(None) };
    decode(&batch, position).map(Some)
}

/// The hash of the event at `position`; `None` if there is no such event.
pub async fn hash_at(client: &Client, partition: Partition, position: i64) -> Result<Option<Vec<u8>>, Error> {
    let batch = batch_at(client, partition, position).await?;
    Ok(batch.and_then(|batch| batch.index_of(position).map(|index| batch.hash(index).to_vec())))
}

/// The record batch that has `position`.
async fn batch_at(
    client: &Client,
    partition: Partition,
    position: i64,
) -> Result<Option<RecordBatch>, Error> {
    let found = batch_pages::holding(client, partition, position).await?;
    let found = found.filter(|batch| batch.last_position() >= position);
    found.map(BatchRow::decode).transpose()
}

/// The position of the newest event of a partition; 0 for a partition without events.
pub async fn head(client: &Client, partition: Partition) -> Result<i64, tokio_postgres::Error> {
    let rows = client.query_typed(READ_HEAD, &[(&partition.number(), Type::INT2)]).await?;
    rows.first().map_or(Ok(0), |row| row.try_get("position"))
}

/// The position and the hash of the newest event of a partition.
pub async fn head_with_hash(
    client: &Client,
    partition: Partition,
) -> Result<(i64, Vec<u8>), tokio_postgres::Error> {
    let row = client.query_one(READ_HEAD_WITH_HASH, &[&partition.number()]).await?;
    Ok((row.try_get("position")?, row.try_get("hash")?))
}

/// The position of the newest event of every partition.
pub async fn heads(client: &Client) -> Result<Positions, tokio_postgres::Error> {
    Positions::from_rows(&client.query(READ_HEADS, &[]).await?)
}

/// Waits for an answer of Postgres, at most for [`ANSWER_TIMEOUT`].
async fn answered<T>(answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
    Ok(answer.map_err(|_| Error::Unanswered)??)
}

/// A connection that reads the log.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    read: Statement,
    read_heads: Statement,
}

impl Reader {
    /// Connects under `role`.
    pub async fn connect(database_url: &str, role: Role) -> Result<Self, Error> {
        let client = connect::connect(database_url, role).await?;
        let statements = async { tokio::try_join!(client.prepare(READ), client.prepare(READ_HEADS)) };
        let (read, read_heads) = answered(statements).await?;
        Ok(Self { client, read, read_heads })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Reads the events of a partition after `position`, in order and without a gap: about `limit`, since a record
    /// batch is read whole, and fewer if they are long.
    pub async fn read(&self, partition: Partition, position: i64, limit: usize) -> Result<Vec<Entry>, Error> {
        self.read_shared(partition, position, limit, 1).await
    }

    /// The same, as one of several `reads` whose events are in memory together.
    pub(crate) async fn read_shared(
        &self,
        partition: Partition,
        position: i64,
        limit: usize,
        reads: usize,
    ) -> Result<Vec<Entry>, Error> {
        let bytes = READ_BYTES / i64::try_from(reads.max(1)).unwrap_or(READ_BYTES);
        let mut entries: Vec<Entry> = Vec::new();
        for (batch, first) in self.batches_up_to(bytes, partition, position, limit).await? {
            for index in first..batch.len() {
                entries.push(Entry::read(&batch, index));
                if entries.len().is_multiple_of(EVENTS_BETWEEN_YIELDS) {
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(entries)
    }

    /// Reads the record batches of the events that [`Self::read`] reads, each with the index of its first
    /// event after `position`. No event is decoded.
    pub(crate) async fn read_batches(
        &self,
        partition: Partition,
        position: i64,
        limit: usize,
    ) -> Result<Vec<(Arc<RecordBatch>, usize)>, Error> {
        self.batches_up_to(READ_BYTES, partition, position, limit).await
    }

    async fn batches_up_to(
        &self,
        bytes: i64,
        partition: Partition,
        position: i64,
        limit: usize,
    ) -> Result<Vec<(Arc<RecordBatch>, usize)>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let batches = self.stored(partition, position, (limit, bytes)).await?;
        let expected = position + 1;
        let found = match batches.first() {
            Some(first) if first.first_position <= expected => return in_order(batches, position),
            Some(later) => Some(later.first_position),
            None => self.first_after(partition, position).await?,
        };
        match found {
            // An event that was appended since the first look is read next.
            None => Ok(Vec::new()),
            Some(found) if found <= expected => Ok(Vec::new()),
            Some(found) => {
                let end = position.saturating_add(limit);
                let archived = batch_pages::archived_after(&self.client, partition, position, end).await?;
                if let Some(archived) = archived {
                    return in_order(archived, position);
                }
                // The range may have been restored since the first look.
                match self.stored(partition, position, (limit, bytes)).await? {
                    batches if batches.first().is_some_and(|first| first.first_position <= expected) => {
                        in_order(batches, position)
                    }
                    _ => Err(Error::Gap { partition, expected, found }),
                }
            }
        }
    }

    /// The record batches of the table with the events after `position`, about `limit` of them or `bytes`.
    async fn stored(
        &self,
        partition: Partition,
        position: i64,
        (limit, bytes): (i64, i64),
    ) -> Result<Vec<BatchRow>, Error> {
        let parameters: [&(dyn ToSql + Sync); 4] = [&partition.number(), &position, &limit, &bytes];
        let rows = answered(self.client.query(&self.read, &parameters)).await?;
        Ok(rows.iter().map(BatchRow::of).collect::<Result<_, _>>()?)
    }

    /// The first position of the first record batch in the table after `position`.
    async fn first_after(&self, partition: Partition, position: i64) -> Result<Option<i64>, Error> {
        let next = answered(self.client.query_opt(NEXT, &[&partition.number(), &position])).await?;
        Ok(next.map(|row| row.try_get(0)).transpose()?)
    }

    /// Reads the position of the newest event of every partition.
    pub async fn heads(&self) -> Result<Positions, Error> {
        Ok(Positions::from_rows(&answered(self.client.query(&self.read_heads, &[])).await?)?)
    }
}
