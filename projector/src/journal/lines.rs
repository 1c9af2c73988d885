//! Reads single events of the log by their positions.

use chrono::{DateTime, Utc};
use farthing_core::event::Recorded;
use farthing_core::partition::Partition;
use farthing_log::record::Record;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::query::{Error, FirstRows, PartitionClient};
use crate::row::{ReadColumn as _, Unreadable};

/// The lines at the positions $2, newest first. A record batch is read once, however many of its events are wanted.
const LINES: &str = "\
SELECT b.partition, b.first_position + line.number - 1 AS position, b.recorded_at, line.text AS line,
       substring(b.hashes FROM (32 * line.number - 31)::integer FOR 32) AS hash
FROM ledger.batches AS b
CROSS JOIN LATERAL string_to_table(convert_from(b.events, 'UTF8'), E'\\n') WITH ORDINALITY AS line(text, number)
WHERE b.partition = $1 AND b.first_position = ANY(ARRAY(
        SELECT DISTINCT (
            SELECT l.first_position FROM ledger.batches AS l
            WHERE l.partition = $1 AND l.first_position <= wanted.position ORDER BY l.first_position DESC LIMIT 1)
        FROM unnest($2::bigint[]) AS wanted(position)))
    AND b.first_position + line.number - 1 = ANY($2::bigint[])
ORDER BY b.first_position DESC, line.number DESC";

/// An event in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its partition.
    pub partition: Partition,
    /// Its position in the partition.
    pub position: i64,
    /// Its hash, which covers the events before it.
    pub hash: Vec<u8>,
    /// The name of its kind.
    pub kind: &'static str,
    /// The version of the body's shape.
    pub version: i32,
    /// When it happened, by its merchant's clock.
    pub occurred_at: DateTime<Utc>,
    /// When it was appended.
    pub recorded_at: DateTime<Utc>,
    /// Its body, JSON, as it was written.
    pub body: String,
}

/// An event, read.
pub(super) struct Line {
    pub(super) recorded: Recorded,
    recorded_at: DateTime<Utc>,
    hash: Vec<u8>,
    version: i32,
    body: String,
}

impl Line {
    /// When it happened, in microseconds of Unix time.
    pub(super) fn at_us(&self) -> i64 {
        self.recorded.fact.occurred_at.timestamp_micros()
    }

    /// The length of its body.
    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }
}

impl From<Line> for EventRow {
    fn from(line: Line) -> Self {
        let Line { recorded, recorded_at, hash, version, body } = line;
        Self {
            partition: recorded.partition,
            position: recorded.position,
            hash,
            kind: recorded.fact.event.kind(),
            version,
            occurred_at: recorded.fact.occurred_at,
            recorded_at,
            body,
        }
    }
}

/// Events that were read, newest first.
#[derive(Default)]
pub(super) struct Readable {
    pub(super) lines: Vec<Line>,
    /// Whether further ones were not read, because these are long.
    pub(super) is_cut: bool,
    /// Why the one after them cannot be read.
    pub(super) stopped: Option<Error>,
}

/// The events at `positions`, newest first; an error if one of them is archived or cannot be read.
pub(super) async fn lines(db: PartitionClient<'_>, positions: &[i64]) -> Result<Vec<Line>, Error> {
    let mut positions = positions.to_vec();
    positions.sort_unstable_by(|one, other| other.cmp(one));
    let Readable { lines, stopped, .. } = readable_lines(db, usize::MAX, &positions).await?;
    stopped.map_or(Ok(lines), Err)
}

/// The events at `positions`, which are newest first, up to one that is archived or cannot be read, or the one with which
/// they have `max_bytes`.
pub(super) async fn readable_lines(
    db: PartitionClient<'_>,
    max_bytes: usize,
    positions: &[i64],
) -> Result<Readable, Error> {
    let FirstRows { rows, is_cut } =
        db.query_up_to(max_bytes, LINES, &[(&positions, Type::INT8_ARRAY)]).await?;
    let mut rows = rows.iter();
    let mut lines = Vec::with_capacity(positions.len());
    for position in positions {
        let line = match rows.next() {
            // Blocks name events that are in the log, there or in its archive.
            Some(row) if row.plain::<i64>("position")? == *position => read(row),
            None if is_cut => return Ok(Readable { lines, is_cut, stopped: None }),
            Some(_) | None => Err(Error::Archived(*position)),
        };
        match line {
            Ok(line) => lines.push(line),
            Err(why) => return Ok(Readable { lines, is_cut, stopped: Some(why) }),
        }
    }
    Ok(Readable { lines, is_cut, stopped: None })
}

fn read(row: &Row) -> Result<Line, Error> {
    let text: &str = row.plain("line")?;
    let unreadable = || Unreadable::Value { column: "line", text: text.to_owned() };
    let record = Record::parse(text).map_err(|_| unreadable())?;
    let fact = record.fact().map_err(|_| unreadable())?;
    let (partition, position) = (Partition::new(row.plain("partition")?), row.plain("position")?);
    Ok(Line {
        recorded: Recorded { partition, position, fact },
        recorded_at: row.plain("recorded_at")?,
        hash: row.plain("hash")?,
        version: record.version,
        body: record.body().to_owned(),
    })
}
