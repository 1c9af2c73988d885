//! `farthing projector`: publishes the log to JetStream and maintains the read models.

use anyhow::{Context as _, Result};

use crate::database::{Database, Nats};
use crate::lifetime::Lifetime;

/// Flags of `projector`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    nats: Nats,
    #[command(flatten)]
    lifetime: Lifetime,
}

/// Runs the role until shutdown.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = args.lifetime.watch_shutdown()?;
    let config =
        farthing_projector::Config { database_url: args.database.database_url, nats_url: args.nats.nats_url };
    let lifetime = args.lifetime;
    let result = farthing_projector::run(config, stop, || lifetime.report_ready(Vec::new())).await;
    result.context("the projector failed")
}
