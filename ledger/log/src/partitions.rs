//! The partitions of a database's log.

use std::collections::BTreeSet;

use farthing_core::partition::{Partition, Partitions};
use tokio_postgres::GenericClient;

const COUNT: &str = "SELECT count(*) FROM ledger.heads";

const HEADS: &str = "SELECT partition FROM ledger.heads ORDER BY partition";

/// The first partition above $1 that has a record batch, by the primary key.
const ABOVE: &str = "\
SELECT partition FROM ledger.batches WHERE partition > $1 ORDER BY partition, first_position LIMIT 1";

/// The last partition below 0 that has one.
const BELOW: &str = "\
SELECT partition FROM ledger.batches WHERE partition < 0 ORDER BY partition DESC, first_position DESC LIMIT 1";

/// Reads the number of partitions; `None` if the database has no usable number of them.
pub async fn load(client: &impl GenericClient) -> Result<Option<Partitions>, tokio_postgres::Error> {
    let count: i64 = client.query_one(COUNT, &[]).await?.try_get(0)?;
    Ok(i16::try_from(count).ok().and_then(Partitions::new))
}

/// A partition that has no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Headless {
    /// One of the log: below the highest head, or the next one, with record batches. Which partition a merchant is in is not
    /// known then.
    Missing(Partition),
    /// Another one, which has record batches. Nothing leads to them.
    Stray(Partition),
}

/// The partitions without a head. The heads are the partitions that a log has, from 0 on. Of those beyond, the nearest are
/// looked for.
pub(crate) async fn headless(client: &impl GenericClient) -> Result<Vec<Headless>, tokio_postgres::Error> {
    let mut heads = BTreeSet::new();
    for row in client.query(HEADS, &[]).await? {
        heads.insert(row.try_get::<_, i16>(0)?);
    }
    let Some(highest) = heads.last().copied() else {
        return Ok(vec![Headless::Missing(Partition::new(0))]);
    };
    let missing = (0..highest).filter(|partition| !heads.contains(partition));
    let mut headless: Vec<_> =
        missing.map(|partition| Headless::Missing(Partition::new(partition))).collect();
    let above = client.query_opt(ABOVE, &[&highest]).await?;
    let below = client.query_opt(BELOW, &[]).await?;
    for row in [above, below].into_iter().flatten() {
        let number: i16 = row.try_get(0)?;
        let is_next = highest.checked_add(1) == Some(number);
        let of = Partition::new(number);
        headless.push(if is_next { Headless::Missing(of) } else { Headless::Stray(of) });
    }
    Ok(headless)
}
