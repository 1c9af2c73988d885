//! `farthing log verify`: verifies the whole log. Exit code 1 on any finding.

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;

use crate::database::Database;
use crate::machine::Machine;
use crate::output::OutputFormat;

/// Subcommands of `log`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Verify the positions, the hash chain and the states of the whole log.
    Verify(Args),
}

/// Flags of `log verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    format: OutputFormat,
}

/// Runs the subcommand.
pub(crate) async fn run(command: &Command) -> Result<()> {
    match command {
        Command::Verify(args) => verify(args).await,
    }
}

async fn verify(args: &Args) -> Result<()> {
    let url = args.database.reachable_url().await?;
    let report = farthing_log::verify::report(&url, Machine::find().cores).await;
    let report = report.context("cannot verify the log")?;
    args.format.print(&report)?;
    ensure!(report.ok, "the log has errors: see the report");
    Ok(())
}
