//! `farthing archive restore`: loads archived ranges back into the database.

use anyhow::{Context as _, Result};
use farthing_core::partition::Partition;
use farthing_log::archive::{self, ArchivedRange};
use serde::Serialize;

use crate::database::Database;
use crate::output::OutputFormat;

/// Flags of `archive restore`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// The partition.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(0..1_024))]
    partition: i16,
    /// Load every range that has an event at this position or later.
    #[arg(long, value_name = "POSITION", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    from: i64,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Debug, Serialize)]
struct Report {
    restored: Vec<ArchivedRange>,
}

/// Runs the subcommand.
pub(super) async fn run(args: &Args) -> Result<()> {
    let (url, store) = (args.database.reachable_url().await?, super::store()?);
    let is_json = args.format.is_json();
    let report = |range: &ArchivedRange| {
        if !is_json {
            super::report("restored", range);
        }
    };
    let partition = Partition::new(args.partition);
    let restored = archive::restore(&url, store, partition, args.from, report).await;
    let restored = restored.context("cannot restore the archive")?;
    if is_json { args.format.print(&Report { restored }) } else { Ok(()) }
}
