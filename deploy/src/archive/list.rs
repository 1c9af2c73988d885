//! `farthing archive list`: what is archived.

use anyhow::{Context as _, Result};
use farthing_core::partition::Partition;
use farthing_log::archive::{self, Listed};
use serde::Serialize;

use crate::database::Database;
use crate::output::{OutputFormat, print_line, timestamp};

/// Flags of `archive list`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// List one partition alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(0..1_024))]
    partition: Option<i16>,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Debug, Serialize)]
struct Report {
    archives: Vec<Listed>,
}

/// Runs the subcommand.
pub(super) async fn run(args: &Args) -> Result<()> {
    let url = args.database.reachable_url().await?;
    let listed = archive::list(&url, args.partition.map(Partition::new)).await;
    let archives = listed.context("cannot list the archives")?;
    if args.format.is_json() {
        return args.format.print(&Report { archives });
    }
    for Listed { range, is_in_table } in archives {
        let state =
            if is_in_table { ", and still in the database: run `farthing archive create`" } else { "" };
        print_line(format!(
            "partition {}, positions {} to {}, {} to {}: {}/{} ({} bytes){state}",
            range.partition,
            range.first_position,
            range.last_position,
            timestamp(range.first_recorded_at),
            timestamp(range.last_recorded_at),
            range.location,
            range.object,
            range.bytes,
        ))?;
    }
    Ok(())
}
