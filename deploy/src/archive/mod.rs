//! `farthing archive`: moves old ranges of the log to files, lists and verifies them, and loads them back. Gateways may run
//! meanwhile.

mod create;
mod list;
mod restore;
mod verify;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use farthing_log::archive::{self, ArchivedRange, Store};

use crate::exit_code::Soundness;
use crate::output::print_line;

/// Subcommands of `archive`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Move the old range of each partition to files. Run again, it goes on.
    Create(Box<create::Args>),
    /// List what is archived. Needs the database alone.
    List(list::Args),
    /// Read all archived files, and prove that they are what was archived.
    Verify(verify::Args),
    /// Load archived ranges of a partition back into the database, the newest first. Their files stay.
    Restore(restore::Args),
}

/// Runs the subcommand.
pub(crate) async fn run(command: Command) -> Result<Soundness> {
    match command {
        Command::Create(args) => create::run(*args).await.map(|()| Soundness::Sound),
        Command::List(args) => list::run(&args).await.map(|()| Soundness::Sound),
        Command::Restore(args) => restore::run(&args).await.map(|()| Soundness::Sound),
        Command::Verify(args) => verify::run(&args).await,
    }
}

/// The archive that `--archive` names.
fn store() -> Result<&'static Store> {
    archive::of_process().context(
        "--archive or FARTHING_ARCHIVE is required, such as file:///srv/archive or s3://bucket/folder",
    )
}

/// Says what became of a range, on a line of its own.
fn report(what: &str, range: &ArchivedRange) {
    // What was done is done, whether or not stdout takes it.
    let _ = print_line(format!(
        "{what} partition {}, positions {} to {}: {} ({} bytes)",
        range.partition, range.first_position, range.last_position, range.object, range.bytes
    ));
}
