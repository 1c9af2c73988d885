//! The partition of a thing, by its stored state.

use farthing_core::partition::Partition;
use farthing_core::state::generation;
use tokio_postgres::Client;

use super::Error;
use super::partition_reader::Ends;

/// The partition of the state of kind $3 with the id $4, of generation $2, which is the current one.
const PARTITION: &str = "\
SELECT partition FROM ledger.state
WHERE partition = ANY($1::smallint[]) AND generation = $2 AND kind = $3 AND id = $4";

/// The partition with the state; all partitions if it is not stored, as for a thing that was just created or is gone.
pub(super) async fn partitions_of(
    client: &Client,
    ends: &Ends,
    kind: &str,
    id: &str,
) -> Result<Vec<Partition>, Error> {
    let all: Vec<_> = ends.partitions().map(Partition::number).collect();
    let row = client.query_opt(PARTITION, &[&all, &generation(), &kind, &id]).await?;
    Ok(match row {
        Some(row) => vec![Partition::new(row.try_get("partition")?)],
        None => ends.partitions().collect(),
    })
}
