//! `farthing prices show|compare|agree|validate`: the price catalogue and files of its form.

mod agree;
mod compare;
mod entry;
mod show;
mod validate;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Subcommands of `prices`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the price of a model, at each provider that has one. Fails if none has.
    Show(show::Args),
    /// Compare two price files model by model. The exit code is 0 if they list the same, and 1 if not.
    Compare(compare::Args),
    /// Print a price file of the models on whose prices two files agree.
    Agree(agree::Args),
    /// Check a price file. The exit code is 0 if a gateway would read it, and 1 if not.
    Validate(validate::Args),
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Show(args) => show::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Agree(args) => agree::run(&args),
        Command::Validate(args) => validate::run(&args),
    }
}
