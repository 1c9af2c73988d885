//! `farthing prune`: drops what only the release before uses, once none of its processes runs any more.

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::database::Database;
use crate::output::OutputFormat;

/// Flags of `prune`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
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
    let database_url = &args.database.database_url;
    let states =
        farthing_log::generations::prune(database_url).await.context("cannot drop earlier states")?;
    let read_models = farthing_projector::prune(database_url).await;
    let read_models = read_models.context("cannot drop earlier read models")?;
    args.format.print(&Pruned { states, read_models })
}
