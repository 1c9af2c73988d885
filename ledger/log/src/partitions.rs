//! The partitions of a database's log.

use farthing_core::partition::Partitions;
use tokio_postgres::GenericClient;

const COUNT: &str = "SELECT count(*) FROM ledger.heads";

/// Reads the number of partitions; `None` if the database has no usable number of them.
pub async fn load(client: &impl GenericClient) -> Result<Option<Partitions>, tokio_postgres::Error> {
    let count: i64 = client.query_one(COUNT, &[]).await?.try_get(0)?;
    Ok(i16::try_from(count).ok().and_then(Partitions::new))
}
