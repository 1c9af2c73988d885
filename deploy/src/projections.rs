//! `farthing projections rebuild|verify`: rebuilds a read model from the log and compares it with the live one.

use anyhow::{Context as _, Result, anyhow};
use clap::Subcommand;
use farthing_projector::{Digests, RebuildReport};

use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::{OutputFormat, print_error};

/// Subcommands of `projections`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Rebuild a read model from the log beside the live one, compare the two, then swap them.
    Rebuild(Args),
    /// Rebuild a read model from the log, compare it with the live one, then drop the copy. Fails on any difference.
    Verify(VerifyArgs),
}

/// Flags of `projections rebuild` and `projections verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Read model: `customers`, `connections`, `meters`, `spend_keys`, `secret_keys`, `checkout_sessions`, `requests`,
    /// `usage`, `payment_methods`, `plans`, `subscriptions`, `entries` or `journal`.
    name: String,
    #[command(flatten)]
    format: OutputFormat,
}

/// Flags of `projections verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    of: Args,
    /// Report SHA-256 over each table, live and rebuilt: of the text of each row and a line feed, in the order of the texts'
    /// bytes. The live rows wait longer.
    #[arg(long)]
    sha256: bool,
}

/// Runs the subcommand.
pub(crate) async fn run(command: &Command) -> Result<Soundness> {
    match command {
        Command::Rebuild(args) => rebuild(args).await.map(|()| Soundness::Sound),
        Command::Verify(args) => verify(args).await,
    }
}

async fn rebuild(args: &Args) -> Result<()> {
    let report = farthing_projector::rebuild(&args.database.reachable_url().await?, &args.name).await;
    args.format.print(&report.context("cannot rebuild the read model")?)
}

async fn verify(VerifyArgs { of: args, sha256 }: &VerifyArgs) -> Result<Soundness> {
    let digests = if *sha256 { Digests::Compute } else { Digests::LeaveOut };
    let url = args.database.reachable_url().await?;
    let report = farthing_projector::verify(&url, &args.name, digests).await;
    let report = report.context("cannot verify the read model")?;
    args.format.print(&report)?;
    Ok(judge(&report))
}

/// Broken if the live rows are not those of the log.
fn judge(report: &RebuildReport) -> Soundness {
    let differences = report.differences;
    if differences == 0 {
        return Soundness::Sound;
    }
    let differ = anyhow!("{differences} rows differ between the read model and its rebuild from the log");
    print_error(&differ);
    Soundness::Broken
}
