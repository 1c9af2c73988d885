//! `farthing key list`: lists a merchant's active secret keys by id and hint. The keys themselves are never shown.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use farthing_core::ids::{MerchantId, SecretKeyId};
use farthing_core::partition::Partition;
use farthing_log::connect::{Role, connect};
use farthing_log::{partitions, reader};
use farthing_projector::query::{Page, PartitionClient};
use farthing_projector::secret_keys::query;
use farthing_projector::{ReadModel, Schemas, checkpoint};
use serde::Serialize;
use tokio_postgres::Client;

use crate::database::Database;
use crate::output::{Listing, OutputFormat, timestamp};

/// How long the read model may take to reach the head of the log.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two reads of the checkpoint.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Flags of `key list`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Merchant whose keys to list, `mer_…`.
    #[arg(long, value_name = "ID")]
    merchant: MerchantId,
    /// Keys per page.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Start after this key: the last one of the previous page.
    #[arg(long, value_name = "ID")]
    cursor: Option<SecretKeyId>,
    #[command(flatten)]
    format: OutputFormat,
}

/// One row of the list.
#[derive(Debug, Serialize)]
struct KeyRow {
    secret_key_id: SecretKeyId,
    secret_key_hint: String,
    created_at: String,
    name: String,
}

/// Runs the subcommand.
pub(crate) async fn run(args: Args) -> Result<()> {
    let url = &args.database.reachable_url().await?;
    let client = connect(url, Role::Gateway).await.context("cannot connect to the database")?;
    let partitions = partitions::load(&client).await.context("cannot read the partitions of the log")?;
    let partitions = partitions.context("the database has no ledger yet: run `farthing migrate` first")?;
    let partition = partitions.of(args.merchant);
    let schemas = Schemas::load(&client).await.context("cannot find the read models")?;
    catch_up(&client, &schemas, partition).await?;
    let rows = PartitionClient::new(&client, &schemas, partition);
    let cursor = args.cursor.map(|id| id.to_string());
    let page = Page { cursor: cursor.as_deref(), limit: args.limit, max_bytes: usize::MAX };
    let listed = query::list(rows, args.merchant, page).await.context("cannot list the keys")?;
    // Every merchant has an active key: its last one cannot be revoked.
    let first = Page { cursor: None, limit: 1, max_bytes: usize::MAX };
    let exists = !listed.items.is_empty()
        || !query::list(rows, args.merchant, first)
            .await
            .context("cannot find the merchant")?
            .items
            .is_empty();
    ensure!(exists, "merchant {} does not exist", args.merchant);
    let last = listed.items.last().map(|row| row.secret_key_id.to_string());
    let data = listed.items.into_iter().map(|row| KeyRow {
        secret_key_id: row.secret_key_id,
        secret_key_hint: row.hint,
        created_at: timestamp(row.created_at),
        name: row.name,
    });
    args.format.print_list(&Listing::new(data.collect(), listed.has_more, last))
}

/// Waits until the read model has reached the current head of the partition. An older list could lack an active key.
async fn catch_up(client: &Client, schemas: &Schemas, partition: Partition) -> Result<()> {
    let head = reader::head(client, partition).await.context("cannot read the head of the log")?;
    let started = Instant::now();
    loop {
        let rows = PartitionClient::new(client, schemas, partition);
        let position = checkpoint::position(rows, ReadModel::SecretKeys).await;
        if position.context("cannot read the checkpoint of the read model")? >= head {
            return Ok(());
        }
        ensure!(started.elapsed() <= CATCH_UP_TIMEOUT, "the read model is behind the log: start a projector");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
