//! `farthing audit`: what an auditor asks the ledger. Each command reads the log itself, verifies what it reads, and fails on
//! any finding. Gateways may run meanwhile.

mod checkpoint_flags;
mod explain;
mod flags;
mod head;
pub(crate) mod operator_key;
mod progress_line;
mod reconcile;
mod replay;
mod statement;
mod statement_page;
mod trial_balance;
mod verdict_report;
mod verify;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Subcommand;
use farthing_log::audit::Findings;

use crate::output::print_error;

/// Subcommands of `audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Verify the log, the states and the read tables, and say of each check whether it holds.
    Verify(Box<verify::Args>),
    /// Publish the head of every partition, for `verify --head`.
    Head(head::Args),
    /// List the double-entry accounts as of a moment. They add up to zero.
    TrialBalance(trial_balance::Args),
    /// List the entries of a wallet over a period, between its opening and its closing funds.
    Statement(statement::Args),
    /// Show the states of a wallet, key, customer, meter, plan or subscription, or of everything, as of a moment.
    Replay(replay::Args),
    /// List calls that somebody must look at, or compare payments or usage with a list of the processor or the provider.
    Reconcile(Box<reconcile::Args>),
    /// Show how a request was charged, from its credential to the last digit.
    Explain(explain::Args),
}

/// The exit code of `verify`, `head`, `replay` and `reconcile` if they could not run. The others fail with 1.
const COULD_NOT_RUN: u8 = 2;

/// Runs the subcommand. Of `verify`, `head`, `replay` and `reconcile`, the exit code is 0 if all is well, 1 if something is
/// broken or differs, 2 if the command could not run.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    let verified = match command {
        Command::Verify(args) => verify::run(*args).await,
        Command::Head(args) => head::run(&args).await.map(|()| ExitCode::SUCCESS),
        Command::Replay(args) => replay::run(&args).await,
        Command::Reconcile(args) => reconcile::run(&args).await,
        Command::TrialBalance(args) => return trial_balance::run(&args).await.map(|()| ExitCode::SUCCESS),
        Command::Statement(args) => return statement::run(&args).await.map(|()| ExitCode::SUCCESS),
        Command::Explain(args) => return explain::run(&args).await.map(|()| ExitCode::SUCCESS),
    };
    Ok(verified.unwrap_or_else(|error| {
        print_error(&error);
        ExitCode::from(COULD_NOT_RUN)
    }))
}

/// The exit code of a command that ran: 1 if the log has errors, or all is not well. Prints the findings on stderr.
fn verdict(findings: &Findings, is_well: bool) -> ExitCode {
    if let Err(error) = fail_on(findings) {
        print_error(&error);
        return ExitCode::from(1);
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Fails if there are findings, and prints them on stderr.
pub(crate) fn fail_on(findings: &Findings) -> Result<()> {
    for finding in &findings.findings {
        print_error(&anyhow::anyhow!("{finding}"));
    }
    ensure!(findings.is_empty(), "the log has errors: {} findings", findings.findings_count);
    Ok(())
}
