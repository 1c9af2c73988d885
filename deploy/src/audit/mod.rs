//! `farthing audit`: what an auditor asks the ledger. Each command reads the log itself, verifies what it reads, and ends with the
//! exit code of any finding (`exit_code.rs`). Gateways may run meanwhile.

mod checkpoint_flags;
mod explain;
mod figures_end;
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

use anyhow::Result;
use clap::Subcommand;

use crate::exit_code::Soundness;

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

/// Runs the subcommand.
pub(crate) async fn run(command: Command) -> Result<Soundness> {
    match command {
        Command::Verify(args) => verify::run(*args).await,
        Command::Head(args) => head::run(&args).await.map(|()| Soundness::Sound),
        Command::Replay(args) => replay::run(&args).await,
        Command::Reconcile(args) => reconcile::run(&args).await,
        Command::TrialBalance(args) => trial_balance::run(&args).await,
        Command::Statement(args) => statement::run(&args).await,
        Command::Explain(args) => explain::run(&args).await,
    }
}
