//! `farthing prune`: drops what only the release before uses, once none of its processes runs any more.

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use crate::database::Database;
use crate::output::OutputFormat;

/// Flags of `prune`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Drop it although processes of an earlier release seem to run. Their reads fail from then on.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    format: OutputFormat,
}

/// What was dropped.
#[derive(Debug, Serialize)]
struct Pruned {
    /// Stored states of earlier generations.
    states: u64,
    /// The Postgres schemas of earlier generations of read models.
    read_models: Vec<String>,
}

/// Runs the subcommand.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let database_url = &args.database.reachable_url().await?;
    if !args.force {
        let running = farthing_projector::running(database_url).await;
        let running = running.context("cannot look for processes of an earlier release")?;
        ensure!(
            running.is_empty(),
            "processes of an earlier release run: {}. Stop them first, or repeat the command with --force",
            running.join(", ")
        );
    }
    let states =
        farthing_log::generations::prune(database_url).await.context("cannot drop earlier states")?;
    let read_models = farthing_projector::prune(database_url).await;
    let read_models = read_models.context("cannot drop earlier read models")?;
    args.format.print(&Pruned { states, read_models })
}
