//! The partitions of a database's log.

use std::collections::BTreeSet;

use farthing_core::partition::{Partition, Partitions};
use tokio_postgres::GenericClient;

const COUNT: &str = "SELECT count(*) FROM ledger.heads";

const HEADS: &str = "SELECT partition FROM ledger.heads ORDER BY partition";

/// The partitions outside of those up to $1 that have record batches.
const STRAYS: &str = "\
SELECT DISTINCT partition FROM ledger.batches WHERE partition < 0 OR partition > $1 ORDER BY partition LIMIT 100";

/// Reads the number of partitions; `None` if the database has no usable number of them.
pub async fn load(client: &impl GenericClient) -> Result<Option<Partitions>, tokio_postgres::Error> {
    let count: i64 = client.query_one(COUNT, &[]).await?.try_get(0)?;
    Ok(i16::try_from(count).ok().and_then(Partitions::new))
}

/// A partition that has no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Headless {
    /// One below the highest head. Which partition a merchant is in is not known then.
    Missing(Partition),
    /// One beyond the highest head, which has record batches.
    Stray(Partition),
}

/// The partitions without a head. The heads are the partitions that a log has, from 0 on.
pub(crate) async fn headless(client: &impl GenericClient) -> Result<Vec<Headless>, tokio_postgres::Error> {
    let mut heads = BTreeSet::new();
    for row in client.query(HEADS, &[]).await? {
        heads.insert(row.try_get::<_, i16>(0)?);
    }
    let highest = heads.last().copied().unwrap_or(-1);
    let missing = (0..highest).filter(|partition| !heads.contains(partition));
    let mut headless: Vec<_> =
        missing.map(|partition| Headless::Missing(Partition::new(partition))).collect();
    for row in client.query(STRAYS, &[&highest]).await? {
        headless.push(Headless::Stray(Partition::new(row.try_get(0)?)));
    }
    Ok(headless)
}
