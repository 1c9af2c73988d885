//! The partitions of a database's log.

use farthing_core::partition::{Partition, Partitions};
use tokio_postgres::GenericClient;

const COUNT: &str = "SELECT count(*) FROM ledger.heads";

/// The partitions below the highest head that have none, and those beyond it that have record batches.
const HEADLESS: &str = "\
WITH top AS (SELECT coalesce(max(partition), -1) AS partition FROM ledger.heads)
SELECT n::smallint, false FROM top, generate_series(0, top.partition) AS n
WHERE NOT EXISTS (SELECT FROM ledger.heads AS h WHERE h.partition = n)
UNION ALL
SELECT DISTINCT b.partition, true FROM ledger.batches AS b
WHERE b.partition < 0 OR b.partition > (SELECT partition FROM top)
ORDER BY 1 LIMIT 100";

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
    let rows = client.query(HEADLESS, &[]).await?;
    let read = |row: &tokio_postgres::Row| {
        let partition = Partition::new(row.try_get(0)?);
        Ok(if row.try_get(1)? { Headless::Stray(partition) } else { Headless::Missing(partition) })
    };
    rows.iter().map(read).collect()
}
