//! `farthing audit`: what an auditor asks the log. Each command reads the log itself, verifies what it reads, and fails on
//! any finding. Gateways may run meanwhile.

mod explain;
mod flags;
mod statement;
mod trial_balance;

use anyhow::{Result, ensure};
use clap::Subcommand;
use farthing_log::audit::Findings;

use crate::output::print_error;

/// Subcommands of `audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the double-entry accounts as of a moment. They add up to zero.
    TrialBalance(trial_balance::Args),
    /// List the entries of a wallet over a period, between its opening and its closing funds.
    Statement(statement::Args),
    /// Show how a request was charged, from its credential to the last digit.
    Explain(explain::Args),
}

/// Runs the subcommand.
pub(crate) async fn run(command: &Command) -> Result<()> {
    match command {
        Command::TrialBalance(args) => trial_balance::run(args).await,
        Command::Statement(args) => statement::run(args).await,
        Command::Explain(args) => explain::run(args).await,
    }
}

/// Fails if there are findings, and prints them on stderr.
fn fail_on(findings: &Findings) -> Result<()> {
    for finding in &findings.findings {
        print_error(&anyhow::anyhow!("{finding}"));
    }
    ensure!(findings.is_empty(), "the log has errors: {} findings", findings.findings_count);
    Ok(())
}
