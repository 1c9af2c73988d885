//! `farthing audit`: verifies the ledger, and publishes its head so that a later run proves that nothing was rewritten.

mod head;
mod operator_key;
mod progress_line;
mod verdict_report;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use crate::output;

/// Subcommands of `audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Verify the log, the states and the read tables, and say of each check whether it holds.
    Verify(Box<verify::Args>),
    /// Publish the head of every partition, for `verify --head`.
    Head(head::Args),
}

/// The exit code of a command that could not run.
const COULD_NOT_RUN: u8 = 2;

/// Runs the subcommand. The exit code is 0 if all is well, 1 if something is broken, 2 if the command could not run.
pub(crate) async fn run(command: Command) -> ExitCode {
    let done = match command {
        Command::Verify(args) => verify::run(*args).await,
        Command::Head(args) => head::run(&args).await.map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        output::print_error(&error);
        ExitCode::from(COULD_NOT_RUN)
    })
}
