//! `farthing merchant create|list`.

mod create;
mod list;

use anyhow::Result;
use clap::Subcommand;

/// Subcommands of `merchant`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a merchant with a wallet and a first secret key. The key is shown only once.
    Create(create::Args),
    /// List the merchants, one page at a time.
    List(list::Args),
}

/// Runs the subcommand.
pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Create(args) => create::run(args).await,
        Command::List(args) => list::run(args).await,
    }
}
