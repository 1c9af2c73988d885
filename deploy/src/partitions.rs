//! `farthing partitions`: who leads each partition of the log, and how far its readers have come.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use farthing_core::state::generation;
use farthing_log::connect::{self, Role};
use farthing_projector::{ReadModel, Schemas, checkpoint};
use serde::Serialize;

use crate::database::Database;
use crate::output::{Listing, OutputFormat};

/// A row per partition.
const PARTITIONS: &str = "\
SELECT h.partition, h.epoch, h.shape, h.position, c.position AS stored, b.position AS built, l.gateway, l.address,
       CASE WHEN isfinite(l.expires_at) THEN extract(epoch FROM l.expires_at - clock_timestamp())::double precision END
           AS lease_seconds,
       l.expires_at > clock_timestamp() AS is_led, w.position AS webhooks
FROM ledger.heads AS h
JOIN ledger.checkpoints AS c ON c.partition = h.partition AND c.generation = h.generation
LEFT JOIN ledger.checkpoints AS b ON b.partition = h.partition AND b.generation = $1 AND h.generation < $1
JOIN ledger.leases AS l ON l.partition = h.partition
LEFT JOIN webhooks.cursor AS w ON w.partition = h.partition
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
    /// The shape of the states of the newest program that has led it.
    shape: i64,
    position: i64,
    /// Of the stored states.
    state_lag: i64,
    /// Of the states that gateways of this program build; null if they are live, or their build has not begun.
    new_state_lag: Option<i64>,
    /// Of the read model that is furthest behind; null before a projector has seen the partition.
    read_model_lag: Option<i64>,
    /// Of the webhook outbox.
    webhook_lag: Option<i64>,
}

/// Runs the subcommand.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let rows = read(&args.database.reachable_url().await?).await.context("cannot read the partitions")?;
    args.format.print_list(&Listing::new(rows, false, None))
}

async fn read(database_url: &str) -> Result<Vec<Row>, farthing_projector::Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    // The positions are read before the heads, so that no lag is below zero.
    let mut projected: BTreeMap<i16, i64> = BTreeMap::new();
    let schemas = Schemas::load(&client).await?;
    for model in ReadModel::ALL {
        for (partition, position) in checkpoint::positions(&client, &schemas, model).await?.iter() {
            projected
                .entry(partition.number())
                .and_modify(|least| *least = position.min(*least))
                .or_insert(position);
        }
    }
    let rows = client.query(PARTITIONS, &[&generation()]).await?;
    Ok(rows.iter().map(|row| Row::read(row, &projected)).collect::<Result<_, _>>()?)
}

impl Row {
    fn read(
        row: &tokio_postgres::Row,
        projected: &BTreeMap<i16, i64>,
    ) -> Result<Self, tokio_postgres::Error> {
        let (partition, position): (i16, i64) = (row.try_get("partition")?, row.try_get("position")?);
        let is_led: bool = row.try_get("is_led")?;
        let behind = |reached: i64| position - reached;
        Ok(Self {
            partition,
            leader: row.try_get::<_, Option<String>>("gateway")?.filter(|_| is_led),
            address: row.try_get::<_, Option<String>>("address")?.filter(|_| is_led),
            lease_seconds: if is_led { row.try_get("lease_seconds")? } else { None },
            epoch: row.try_get("epoch")?,
            shape: row.try_get("shape")?,
            position,
            state_lag: behind(row.try_get("stored")?),
            new_state_lag: row.try_get::<_, Option<i64>>("built")?.map(behind),
            read_model_lag: projected.get(&partition).copied().map(behind),
            webhook_lag: row.try_get::<_, Option<i64>>("webhooks")?.map(behind),
        })
    }
}
