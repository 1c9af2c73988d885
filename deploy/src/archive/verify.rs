//! `farthing archive verify`: reads all archived files, and proves that they are what was archived.

use anyhow::{Context as _, Result};
use farthing_core::partition::Partition;
use farthing_log::archive;

use crate::database::Database;
use crate::exit_code::Soundness;
use crate::output::{OutputFormat, print_line};

/// Flags of `archive verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    /// Verify one partition alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(0..1_024))]
    partition: Option<i16>,
    #[command(flatten)]
    format: OutputFormat,
}

/// Runs the subcommand.
pub(super) async fn run(args: &Args) -> Result<Soundness> {
    let (url, store) = (args.database.reachable_url().await?, super::store()?);
    let report = archive::verify(&url, store, args.partition.map(Partition::new)).await;
    let report = report.context("cannot verify the archives")?;
    if args.format.is_json() {
        args.format.print(&report)?;
    } else {
        for finding in &report.findings {
            let archive::Finding { partition, position, object, text } = finding;
            print_line(format!("partition {partition}, position {position}: {object}: {text}"))?;
        }
        let verdict = if report.ok { "verified" } else { "broken" };
        print_line(format!("{verdict}: {} events in {} files", report.events, report.files))?;
    }
    Ok(Soundness::Sound.and(report.ok))
}
