//! `farthing prices show|compare|agree|validate`: the price catalogue and files of its form.

mod agree;
mod compare;
mod entry;
mod show;
mod validate;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::exit_code::Soundness;

/// Subcommands of `prices`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the price of a model, at each provider that has one. Fails if none has.
    Show(show::Args),
    /// Compare two price files model by model. The exit code is 0 if they list the same, 1 if not, and 2 if one cannot be read.
    Compare(compare::Args),
    /// Print a price file of the models on whose prices two files agree.
    Agree(agree::Args),
    /// Check a price file. The exit code is 0 if a gateway would read it and knows its providers, and 1 if not.
    Validate(validate::Args),
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Show(args) => show::run(&args),
        Command::Compare(args) => Ok(Soundness::exit_code(compare::run(&args))),
        Command::Agree(args) => agree::run(&args),
        Command::Validate(args) => validate::run(&args),
    }
}
