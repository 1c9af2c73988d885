//! `farthing archive create`: moves the old range of each partition to files.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use farthing_log::archive::{self, Created, Plan};
use farthing_log::relay;
use serde::Serialize;

use crate::database::Database;
use crate::nats::Nats;
use crate::output::{OutputFormat, print_line};
use crate::value_parsers::instant;

/// The newest events of each partition that stay by default: what a gateway searches for calls whose outcome is in doubt.
const KEEP_EVENTS: i64 = 200_000;

/// Flags of `archive create`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    nats: Nats,
    /// Archive one partition alone.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(0..1_024))]
    partition: Option<i16>,
    /// Archive nothing of the partition after this position.
    #[arg(long, value_name = "POSITION", requires = "partition", value_parser = clap::value_parser!(i64).range(1..))]
    to: Option<i64>,
    /// Archive only what was appended before this: a date, or a time such as 2026-11-01T00:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    before: Option<DateTime<Utc>>,
    /// The newest events of each partition that stay in the database. With fewer, a gateway may not find the outcome of a call
    /// that is in doubt, and answers 503.
    #[arg(long, value_name = "N", default_value_t = KEEP_EVENTS, value_parser = clap::value_parser!(i64).range(0..))]
    keep_events: i64,
    /// About the most events of a file. It also ends at 16 MiB of events.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..))]
    events_per_file: i64,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Debug, Serialize)]
struct Report {
    partitions: Vec<Created>,
}

/// Runs the subcommand.
pub(super) async fn run(args: Args) -> Result<()> {
    let (url, store) = (args.database.reachable_url().await?, super::store()?);
    let published = match args.nats.config()? {
        Some(nats) => relay::published(&url, &nats).await.context("cannot ask NATS how far the feed is")?,
        None => BTreeMap::new(),
    };
    let plan = Plan {
        partition: args.partition.map(Partition::new),
        to: args.to,
        before: args.before,
        keep_events: args.keep_events,
        events_per_file: args.events_per_file,
        published,
    };
    let is_json = args.format.is_json();
    let report = |range: &archive::ArchivedRange| {
        if !is_json {
            super::report("archived", range);
        }
    };
    let partitions = archive::create(&url, store, &plan, report).await.context("cannot archive the log")?;
    if is_json {
        return args.format.print(&Report { partitions });
    }
    for created in partitions {
        print_line(format!(
            "partition {}: may be archived up to {}: {}",
            created.partition, created.limit_position, created.limit
        ))?;
    }
    Ok(())
}
