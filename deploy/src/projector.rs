//! `farthing projector`: publishes the log to JetStream and keeps the read models.

use crate::database::{Database, Nats};
use crate::failure::{Failure, IntoFailure as _};
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

/// Runs the role until it is told to stop.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let stop = args.lifetime.begin()?;
    let config =
        farthing_projector::Config { database_url: args.database.database_url, nats_url: args.nats.nats_url };
    let lifetime = args.lifetime;
    let ended = farthing_projector::run(config, stop, || lifetime.up(Vec::new())).await;
    ended.or_fail("the projector stopped")
}
