//! Reads the log in order, each partition for itself. Invariant: the positions of a partition have no gap; a gap is an
//! error and is never skipped.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::connect::{self, Role, redacted};
use super::positions::Positions;
use super::record::{self, Unreadable};
use super::record_batch::{Damaged, RecordBatch};
use farthing_core::event::Recorded;
use farthing_core::partition::Partition;

/// The record batches with the events of partition $1 after position $2, as many as have an event up to position
/// $2 + $3.
pub const READ: &str = "\
SELECT partition, first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position <= $2::bigint + $3::bigint AND first_position + count > $2 + 1
    AND first_position >= coalesce((
        SELECT b.first_position FROM ledger.batches AS b
        WHERE b.partition = $1 AND b.first_position <= $2 + 1 ORDER BY b.first_position DESC LIMIT 1), 1)
ORDER BY first_position";

/// The first position of the first record batch after position $2.
const NEXT: &str = "\
SELECT first_position FROM ledger.batches WHERE partition = $1 AND first_position > $2 ORDER BY first_position LIMIT 1";

/// The position of the newest event of partition $1.
pub const READ_HEAD: &str = "SELECT position FROM ledger.heads WHERE partition = $1";

/// The same, with its hash.
pub const READ_HEAD_WITH_HASH: &str = "SELECT position, hash FROM ledger.heads WHERE partition = $1";

/// The position of the newest event of each partition.
const READ_HEADS: &str = "SELECT partition, position FROM ledger.heads ORDER BY partition";

/// The batches of the facts with the keys $2, and the positions of those facts.
const READ_FACTS: &str = "\
SELECT f.position, b.partition, b.first_position, b.count, b.recorded_at, b.writer, b.events, b.hashes
FROM ledger.facts AS f
CROSS JOIN LATERAL (
    SELECT l.partition, l.first_position, l.count, l.recorded_at, l.writer, l.events, l.hashes
    FROM ledger.batches AS l
    WHERE l.partition = f.partition AND l.first_position <= f.position ORDER BY l.first_position DESC LIMIT 1) AS b
WHERE f.partition = $1 AND f.key = ANY($2::text[]) ORDER BY f.position";

/// Events decoded before the task yields to others.
const EVENTS_BETWEEN_YIELDS: usize = 256;

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer.
    #[error("the log cannot be read: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
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

/// One event of the log: its record in its batch, and the decoded event.
#[derive(Debug)]
pub struct Entry {
    position: i64,
    recorded: Result<Recorded, Unreadable>,
    batch: Arc<RecordBatch>,
    index: usize,
}

impl Entry {
    fn read(batch: &Arc<RecordBatch>, index: usize) -> Self {
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

/// Reads a record batch from its row.
pub(crate) fn batch(row: &Row) -> Result<RecordBatch, Error> {
    let partition = Partition::new(row.try_get("partition")?);
    let first_position = row.try_get("first_position")?;
    let batch = RecordBatch::new(
        (partition, first_position),
        row.try_get("count")?,
        row.try_get("recorded_at")?,
        row.try_get("writer")?,
        row.try_get("events")?,
        row.try_get("hashes")?,
    );
    batch.map_err(|damaged| Error::Damaged { partition, first_position, damaged })
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
    rows.iter().map(|row| decode(&batch(row)?, row.try_get("position")?)).collect()
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
    let batch = batch(&row)?;
    (row.try_get("position")?..=batch.last_position()).map(|position| decode(&batch, position)).collect()
}

/// The event at `position`.
pub async fn event_at(
    client: &Client,
    partition: Partition,
    position: i64,
) -> Result<Option<Recorded>, Error> {
    let row = client.query_opt(READ, &[&partition.number(), &(position - 1), &1_i64]).await?;
    row.map(|row| decode(&batch(&row)?, position)).transpose()
}

/// The hash of the event at `position`; `None` if there is no such event.
pub async fn hash_at(client: &Client, partition: Partition, position: i64) -> Result<Option<Vec<u8>>, Error> {
    let row = client.query_opt(READ, &[&partition.number(), &(position - 1), &1_i64]).await?;
    let Some(batch) = row.map(|row| batch(&row)).transpose()? else { return Ok(None) };
    Ok(batch.index_of(position).map(|index| batch.hash(index).to_vec()))
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
        let (read, read_heads) = tokio::try_join!(client.prepare(READ), client.prepare(READ_HEADS))?;
        Ok(Self { client, read, read_heads })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Reads the events of a partition after `position`, in order and without a gap: about `limit`, since a record
    /// batch is read whole.
    pub async fn read(&self, partition: Partition, position: i64, limit: usize) -> Result<Vec<Entry>, Error> {
        let mut batches = std::pin::pin!(self.batches(partition, position, limit).await?);
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((batch, first)) = batches.try_next().await? {
            for index in first..batch.len() {
                entries.push(Entry::read(&batch, index));
                if entries.len().is_multiple_of(EVENTS_BETWEEN_YIELDS) {
                    tokio::task::yield_now().await;
                }
            }
        }
        if entries.is_empty() {
            self.refuse_gap(partition, position).await?;
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
        let batches: Vec<_> = self.batches(partition, position, limit).await?.try_collect().await?;
        if batches.is_empty() {
            self.refuse_gap(partition, position).await?;
        }
        Ok(batches)
    }

    /// The record batches with the events after `position`, each with the index of its first such event.
    async fn batches(
        &self,
        partition: Partition,
        position: i64,
        limit: usize,
    ) -> Result<impl Stream<Item = Result<(Arc<RecordBatch>, usize), Error>> + use<>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 3] = [&partition.number(), &position, &limit];
        let rows = self.client.query_raw(&self.read, parameters).await?;
        let mut expected = position + 1;
        Ok(rows.map(move |row| {
            let batch = batch(&row?)?;
            let first = batch.index_of(expected);
            let first = first.ok_or(Error::Gap { partition, expected, found: batch.first_position() })?;
            expected = batch.last_position() + 1;
            Ok((Arc::new(batch), first))
        }))
    }

    /// Fails if there are events after `position`, but not the next one.
    async fn refuse_gap(&self, partition: Partition, position: i64) -> Result<(), Error> {
        let next = self.client.query_opt(NEXT, &[&partition.number(), &position]).await?;
        let expected = position + 1;
        match next.map(|row| row.try_get(0)).transpose()? {
            // An event that was appended since the first look is read next.
            None => Ok(()),
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(Error::Gap { partition, expected, found }),
        }
    }

    /// Reads the position of the newest event of every partition.
    pub async fn heads(&self) -> Result<Positions, Error> {
        Ok(Positions::from_rows(&self.client.query(&self.read_heads, &[]).await?)?)
    }
}
