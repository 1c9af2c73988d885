//! `farthing log verify`: verifies the whole log. Broken on any finding.

use anyhow::{Context as _, Result, anyhow};
use clap::Subcommand;

use crate::database::Database;
use crate::exit_code::Soundness;
use crate::machine::Machine;
use crate::output::{OutputFormat, print_error};

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
pub(crate) async fn run(command: &Command) -> Result<Soundness> {
    match command {
        Command::Verify(args) => verify(args).await,
    }
}

async fn verify(args: &Args) -> Result<Soundness> {
    let url = args.database.reachable_url().await?;
    let report = farthing_log::verify::report(&url, Machine::find().cores).await;
    let report = report.context("cannot verify the log")?;
    args.format.print(&report)?;
    if report.ok {
        return Ok(Soundness::Sound);
    }
    print_error(&anyhow!("the log has errors: see the report"));
    Ok(Soundness::Broken)
}
