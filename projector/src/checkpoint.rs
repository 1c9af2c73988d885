//! The checkpoint of a read model: a position per partition of the log and generation, in the generation's own schema.
//! Invariant: a position moves only in the transaction that writes the rows, and only from the position that the writer
//! expects (the fence). A read model shows the log up to its checkpoint, or up to the end of the idle span that the
//! checkpoint is in (see `idle_spans`).

use farthing_log::positions::Positions;
use farthing_schema::read_model::ReadModel;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::query::{PartitionClient, first_row, text};
use crate::schemas::Schemas;

/// The positions of a generation, and its number.
pub(crate) const SELECT: &str =
    "SELECT partition, position, generation FROM {schema}.checkpoint ORDER BY partition";

/// Adds the partitions that a new generation lacks. Of the joins of all partitions with one, Citus executes only one with a
/// subquery that cannot be flattened, hence the OFFSET.
pub(crate) const ADD_PARTITIONS: &str = "\
INSERT INTO {schema}.checkpoint (partition, position, generation)
SELECT h.partition, 0, c.generation FROM ledger.heads AS h
CROSS JOIN (SELECT generation FROM {schema}.checkpoint WHERE partition = 0 OFFSET 0) AS c
WHERE h.partition <> 0
ON CONFLICT (partition) DO NOTHING";

/// The position in partition $1 up to which the read model $2 of version $3 shows the log.
const SHOWN: &str = "\
SELECT CASE WHEN s.starts_after <= c.position THEN greatest(c.position, s.ends_at) ELSE c.position END AS position
FROM {schema}.checkpoint AS c
LEFT JOIN ledger.idle_spans AS s ON s.partition = c.partition AND s.read_model = $2 AND s.version = $3
WHERE c.partition = $1";

/// The same in every partition, of the read model $1 of version $2.
const ALL_SHOWN: &str = "\
SELECT c.partition,
       CASE WHEN s.starts_after <= c.position THEN greatest(c.position, s.ends_at) ELSE c.position END AS position
FROM {schema}.checkpoint AS c
LEFT JOIN ledger.idle_spans AS s ON s.partition = c.partition AND s.read_model = $1 AND s.version = $2";

/// Moves the checkpoint of the partitions $1 from the positions $2 to $3. The row of a partition that another writer has
/// moved is not changed.
pub(crate) const ADVANCE: &str = "\
UPDATE {schema}.checkpoint AS c SET position = moved.after
FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS moved(partition, before, after)
WHERE c.partition = moved.partition AND c.position = moved.before";

/// A move of some partitions from one position to another.
pub(crate) struct Advance {
    pub(crate) partitions: Vec<i16>,
    pub(crate) before: Vec<i64>,
    pub(crate) after: Vec<i64>,
}

impl Advance {
    /// The move of the partitions that are at another position in `to` than in `from`.
    pub(crate) fn new(from: &Positions, to: &Positions) -> Self {
        let moved = || to.iter().filter(|(partition, position)| from.get(*partition) != *position);
        Self {
            partitions: moved().map(|(partition, _)| partition.number()).collect(),
            before: moved().map(|(partition, _)| from.get(partition)).collect(),
            after: moved().map(|(_, position)| position).collect(),
        }
    }

    /// Whether a statement that changed `rows` rows moved every partition. If not, another writer has moved one.
    pub(crate) fn is_done_by(&self, rows: u64) -> bool {
        usize::try_from(rows) == Ok(self.partitions.len())
    }
}

/// The position of the partition up to which this program's generation of `model` shows the log. A reader that must see its own
/// write waits until this reaches the position of the write.
pub async fn position(db: PartitionClient<'_>, model: ReadModel) -> Result<i64, tokio_postgres::Error> {
    let (schema, version) = db.generation(model);
    let sql = SHOWN.replace("{schema}", schema);
    let row = first_row(db, &sql, &[text(&model.name()), (&version, Type::INT8)]).await?;
    row.map_or(Ok(0), |row| row.try_get("position"))
}

/// The same in every partition that a projector has seen.
pub async fn positions(
    client: &Client,
    schemas: &Schemas,
    model: ReadModel,
) -> Result<Positions, tokio_postgres::Error> {
    let (schema, version) = schemas.generation(model);
    let sql = ALL_SHOWN.replace("{schema}", schema);
    Positions::from_rows(&client.query(&sql, &[&model.name(), &version]).await?)
}

#[cfg(test)]
mod tests {
    use farthing_core::partition::Partition;

    use super::*;

    #[test]
    fn only_partitions_that_moved_are_advanced_and_each_is_fenced() {
        let at = |positions: [i64; 3]| -> Positions { (0..).map(Partition::new).zip(positions).collect() };
        let advance = Advance::new(&at([5, 6, 7]), &at([5, 9, 8]));
        assert_eq!(
            (advance.partitions.as_slice(), advance.before.as_slice()),
            ([1, 2].as_slice(), [6, 7].as_slice())
        );
        assert_eq!(advance.after, [9, 8]);
        assert!(advance.is_done_by(2) && !advance.is_done_by(1), "one was moved by another writer");
    }
}
