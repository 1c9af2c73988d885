//! The order in which partitions are searched for the events of a thing: first the one that has its stored state.

use farthing_core::partition::Partition;
use farthing_core::state::generation;
use tokio_postgres::Client;

use super::Error;
use super::partition_reader::Ends;

/// The partitions of the state of kind $3 with the id $4, of generation $2, which is the current one.
const PARTITIONS: &str = "\
SELECT partition FROM ledger.state
WHERE partition = ANY($1::smallint[]) AND generation = $2 AND kind = $3 AND id = $4";

/// All partitions, the one with the stored state first: states are made of the log, and may be elsewhere than in its partition
/// if somebody changed them. The log decides.
pub(super) async fn partitions_to_search(
    client: &Client,
    ends: &Ends,
    kind: &str,
    id: &str,
) -> Result<Vec<Partition>, Error> {
    let all: Vec<_> = ends.partitions().map(Partition::number).collect();
    let rows = client.query(PARTITIONS, &[&all, &generation(), &kind, &id]).await?;
    let mut partitions = Vec::with_capacity(all.len());
    for row in rows {
        partitions.push(Partition::new(row.try_get("partition")?));
    }
    let others = ends.partitions().filter(|partition| !partitions.contains(partition)).collect::<Vec<_>>();
    partitions.extend(others);
    Ok(partitions)
}
