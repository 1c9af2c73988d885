//! `farthing key issue|list|revoke`.

mod issue;
mod list;
mod revoke;

use anyhow::Result;
use clap::Subcommand;

/// Subcommands of `key`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Issue another secret key to a merchant. The key is shown only once.
    Issue(issue::Args),
    /// List the active secret keys of a merchant, one page at a time.
    List(list::Args),
    /// Revoke a secret key, on every gateway at once. The last active key of a merchant cannot be revoked.
    Revoke(revoke::Args),
}

/// Runs the subcommand.
pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Issue(args) => issue::run(args).await,
        Command::List(args) => list::run(args).await,
        Command::Revoke(args) => revoke::run(args).await,
    }
}
