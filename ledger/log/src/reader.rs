//! Reads the log in order. Invariant: positions have no gap; a gap is an error and is never skipped.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::connect::{self, Role, redacted};
use super::record::{self, Unreadable};
use super::record_batch::{Damaged, RecordBatch};
use farthing_core::event::Recorded;

/// The only partition so far.
pub(crate) const PARTITION: i16 = 0;

/// The record batches with the events after position $2, as many as have an event up to position $2 + $3.
pub const READ: &str = "\
SELECT first_position, count, recorded_at, writer, events, hashes FROM ledger.batches
WHERE partition = $1 AND first_position <= $2::bigint + $3::bigint AND first_position + count > $2 + 1
    AND first_position >= coalesce((
        SELECT b.first_position FROM ledger.batches AS b
        WHERE b.partition = $1 AND b.first_position <= $2 + 1 ORDER BY b.first_position DESC LIMIT 1), 1)
ORDER BY first_position";

/// The first position of the first record batch after position $2.
const NEXT: &str = "\
SELECT first_position FROM ledger.batches WHERE partition = $1 AND first_position > $2 ORDER BY first_position LIMIT 1";

/// The position of the newest event.
pub const READ_HEAD: &str = "SELECT position FROM ledger.heads WHERE partition = 0";

/// The batches of the facts with the keys $2, and the positions of those facts.
const READ_FACTS: &str = "\
SELECT f.position, b.first_position, b.count, b.recorded_at, b.writer, b.events, b.hashes
FROM ledger.facts AS f
CROSS JOIN LATERAL (
    SELECT l.first_position, l.count, l.recorded_at, l.writer, l.events, l.hashes FROM ledger.batches AS l
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
    #[error("the log has a gap: position {expected} is missing, {found} follows")]
    Gap {
        /// The position that is missing.
        expected: i64,
        /// The position that was read instead.
        found: i64,
    },
    /// A record batch was changed.
    #[error("the record batch at position {first_position} is damaged: {damaged}")]
    Damaged {
        /// The position of its first event.
        first_position: i64,
        /// The damage.
        damaged: Damaged,
    },
    /// This program cannot read an event that it must know.
    #[error("the event at position {position} cannot be read: {unreadable}")]
    Unreadable {
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
        let position = batch.position_of(index);
        let recorded = record::decode(batch.line(index)).map(|fact| Recorded { position, fact });
        Self { position, recorded, batch: Arc::clone(batch), index }
    }

    /// The event's position in the log.
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

    /// Its record batch, and its index there.
    pub(crate) const fn batch(&self) -> (&Arc<RecordBatch>, usize) {
        (&self.batch, self.index)
    }
}

/// Reads a record batch from its row.
pub(crate) fn batch(row: &Row) -> Result<RecordBatch, Error> {
    let first_position = row.try_get("first_position")?;
    let batch = RecordBatch::new(
        first_position,
        row.try_get("count")?,
        row.try_get("recorded_at")?,
        row.try_get("writer")?,
        row.try_get("events")?,
        row.try_get("hashes")?,
    );
    batch.map_err(|damaged| Error::Damaged { first_position, damaged })
}

/// Decodes the event at `position` of its batch.
fn decode(batch: &RecordBatch, position: i64) -> Result<Recorded, Error> {
    let index = batch.index_of(position);
    let index = index.ok_or(Error::Gap { expected: position, found: batch.first_position() })?;
    let fact = record::decode(batch.line(index));
    let fact = fact.map_err(|unreadable| Error::Unreadable { position, unreadable })?;
    Ok(Recorded { position, fact })
}

/// The events with the keys in `keys`, in the order of the log. The log indexes the facts of everything but calls.
pub async fn find(client: &Client, keys: &[&str]) -> Result<Vec<Recorded>, Error> {
    let rows = client.query(READ_FACTS, &[&PARTITION, &keys]).await?;
    rows.iter().map(|row| decode(&batch(row)?, row.try_get("position")?)).collect()
}

/// The position of the event with `key`.
pub async fn find_position(client: &Client, key: &str) -> Result<Option<i64>, Error> {
    const FIND: &str = "SELECT position FROM ledger.facts WHERE partition = $1 AND key = $2";
    let row = client.query_opt(FIND, &[&PARTITION, &key]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// The event with `key` and those that follow it in the same commit.
pub async fn find_commit(client: &Client, key: &str) -> Result<Vec<Recorded>, Error> {
    let Some(row) = client.query_opt(READ_FACTS, &[&PARTITION, &[key].as_slice()]).await? else {
        return Ok(Vec::new());
    };
    let batch = batch(&row)?;
    (row.try_get("position")?..=batch.last_position()).map(|position| decode(&batch, position)).collect()
}

/// The event at `position`.
pub async fn event_at(client: &Client, position: i64) -> Result<Option<Recorded>, Error> {
    let row = client.query_opt(READ, &[&PARTITION, &(position - 1), &1_i64]).await?;
    row.map(|row| decode(&batch(&row)?, position)).transpose()
}

/// A connection that reads the log.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    read: Statement,
}

impl Reader {
    /// Connects under `role`.
    pub async fn connect(database_url: &str, role: Role) -> Result<Self, Error> {
        let client = connect::connect(database_url, role).await?;
        let read = client.prepare(READ).await?;
        Ok(Self { client, read })
    }

    /// Reads the events after `position`, in order and without a gap: about `limit`, since a record batch is read whole.
    pub async fn read(&self, position: i64, limit: usize) -> Result<Vec<Entry>, Error> {
        let mut batches = std::pin::pin!(self.batches(position, limit).await?);
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
            self.refuse_gap(position).await?;
        }
        Ok(entries)
    }

    /// Reads the record batches of the events that [`Self::read`] reads, each with the index of its first
    /// event after `position`. No event is decoded.
    pub(crate) async fn read_batches(
        &self,
        position: i64,
        limit: usize,
    ) -> Result<Vec<(Arc<RecordBatch>, usize)>, Error> {
        let batches: Vec<_> = self.batches(position, limit).await?.try_collect().await?;
        if batches.is_empty() {
            self.refuse_gap(position).await?;
        }
        Ok(batches)
    }

    /// The record batches with the events after `position`, each with the index of its first such event.
    async fn batches(
        &self,
        position: i64,
        limit: usize,
    ) -> Result<impl Stream<Item = Result<(Arc<RecordBatch>, usize), Error>> + use<>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 3] = [&PARTITION, &position, &limit];
        let rows = self.client.query_raw(&self.read, parameters).await?;
        let mut expected = position + 1;
        Ok(rows.map(move |row| {
            let batch = batch(&row?)?;
            let first = batch.index_of(expected);
            let first = first.ok_or(Error::Gap { expected, found: batch.first_position() })?;
            expected = batch.last_position() + 1;
            Ok((Arc::new(batch), first))
        }))
    }

    /// Fails if there are events after `position`, but not the next one.
    async fn refuse_gap(&self, position: i64) -> Result<(), Error> {
        let next = self.client.query_opt(NEXT, &[&PARTITION, &position]).await?;
        let expected = position + 1;
        match next.map(|row| row.try_get(0)).transpose()? {
            // An event that was appended since the first look is read next.
            None => Ok(()),
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(Error::Gap { expected, found }),
        }
    }

    /// Reads the hash of the event at `position`; `None` if there is no such event.
    pub async fn hash_at(&self, position: i64) -> Result<Option<Vec<u8>>, Error> {
        let parameters: [&(dyn ToSql + Sync); 3] = [&PARTITION, &(position - 1), &1_i64];
        let Some(row) = self.client.query_opt(&self.read, &parameters).await? else { return Ok(None) };
        let batch = batch(&row)?;
        Ok(batch.index_of(position).map(|index| batch.hash(index).to_vec()))
    }

    /// Reads the position of the newest event.
    pub async fn head(&self) -> Result<i64, Error> {
        Ok(self.client.query_one(READ_HEAD, &[]).await?.try_get(0)?)
    }
}
