//! `farthing partitions`: who leads each partition of the log, and how far its readers have come.

use anyhow::{Context as _, Result};
use farthing_log::connect::{self, Role};
use farthing_projector::ReadModel;
use serde::Serialize;

use crate::database::Database;
use crate::output::{Listing, OutputFormat};

/// A row per partition, with the read model that is furthest behind.
const PARTITIONS: &str = "\
SELECT h.partition, h.epoch, h.position, c.position AS stored, l.gateway, l.address,
       extract(epoch FROM l.expires_at - clock_timestamp())::double precision AS lease_seconds,
       l.expires_at > clock_timestamp() AS is_led, w.position AS webhooks, p.position AS projected
FROM ledger.heads AS h
JOIN ledger.checkpoints AS c USING (partition)
JOIN ledger.leases AS l USING (partition)
LEFT JOIN webhooks.cursor AS w USING (partition)
LEFT JOIN (SELECT partition, min(position) AS position FROM ({checkpoints}) AS every GROUP BY partition) AS p
    USING (partition)
ORDER BY h.partition";

/// Flags of `partitions`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    format: OutputFormat,
}

/// A partition. Lags are in events behind the head.
#[derive(Debug, Serialize)]
struct Row {
    partition: i16,
    /// The gateway that leads it; null if nobody does.
    leader: Option<String>,
    /// Where other gateways reach the leader.
    address: Option<String>,
    /// The seconds until the lease expires, unless it is renewed.
    lease_seconds: Option<f64>,
    epoch: i64,
    position: i64,
    /// Of the stored states.
    state_lag: i64,
    /// Of the read model that is furthest behind; null before a projector has seen the partition.
    read_model_lag: Option<i64>,
    /// Of the webhook outbox.
    webhook_lag: Option<i64>,
}

/// Runs the subcommand.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let read = async {
        let client = connect::connect(&args.database.database_url, Role::Owner).await?;
        client.query(&sql(), &[]).await
    };
    let rows = read.await.context("cannot read the partitions")?;
    let row = |row: &tokio_postgres::Row| {
        let position: i64 = row.try_get("position")?;
        let is_led: bool = row.try_get("is_led")?;
        let behind = |reached: Option<i64>| reached.map(|reached| position - reached);
        Ok(Row {
            partition: row.try_get("partition")?,
            leader: row.try_get::<_, Option<String>>("gateway")?.filter(|_| is_led),
            address: row.try_get::<_, Option<String>>("address")?.filter(|_| is_led),
            lease_seconds: is_led.then(|| row.try_get("lease_seconds")).transpose()?,
            epoch: row.try_get("epoch")?,
            position,
            state_lag: position - row.try_get::<_, i64>("stored")?,
            read_model_lag: behind(row.try_get("projected")?),
            webhook_lag: behind(row.try_get("webhooks")?),
        })
    };
    let rows: Result<Vec<Row>, tokio_postgres::Error> = rows.iter().map(row).collect();
    args.format.print_list(&Listing::new(rows.context("cannot read the partitions")?, false, None))
}

/// [`PARTITIONS`] with the checkpoints of all read models.
fn sql() -> String {
    let checkpoint =
        |model: ReadModel| format!("SELECT partition, position FROM {}.checkpoint", model.name());
    let checkpoints: Vec<String> = ReadModel::ALL.into_iter().map(checkpoint).collect();
    PARTITIONS.replace("{checkpoints}", &checkpoints.join(" UNION ALL "))
}
