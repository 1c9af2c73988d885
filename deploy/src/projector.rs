//! `farthing projector`: publishes the log to JetStream and maintains the read models.

use anyhow::{Context as _, Result};

use crate::database::Database;
use crate::lifetime::Lifetime;
use crate::log_format::LogFormat;
use crate::machine::{Machine, Threads};
use crate::nats::Nats;
use crate::operator_listener::OperatorArgs;
use crate::value_parsers;

/// Flags of `projector`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    nats: Nats,
    /// Number of NATS servers that store the feed. More than 1 needs a cluster.
    #[arg(long, env = "FARTHING_FEED_REPLICAS", value_name = "N", default_value_t = 1,
        value_parser = value_parsers::feed_replicas())]
    feed_replicas: u8,
    /// Connections to Postgres over which rows are written, opened when they are needed. Three more are for other work.
    #[arg(long, env = "FARTHING_WRITE_CONNECTIONS", value_name = "N", default_value_t = 4,
        value_parser = value_parsers::write_connections())]
    write_connections: u16,
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    lifetime: Lifetime,
}

impl Args {
    /// The format of the log.
    pub(crate) const fn log_format(&self) -> LogFormat {
        self.lifetime.log_format
    }

    /// The number of threads on this machine.
    pub(crate) fn threads(&self, machine: &Machine) -> usize {
        self.threads.on(machine)
    }
}

/// Runs the role until shutdown.
pub(crate) async fn run(args: Args, machine: Machine) -> Result<()> {
    let stop = args.lifetime.watch_shutdown()?;
    let operator = args.operator.start("projector").await?;
    let write_connections = usize::from(args.write_connections);
    tracing::info!(
        event = "settings.chosen",
        cores = machine.cores,
        memory_mib = machine.memory_mib,
        threads = args.threads(&machine),
        write_connections,
        "what this projector uses of the machine"
    );
    let config = farthing_projector::Config {
        database_url: args.database.url()?,
        nats: args.nats.config()?,
        feed_replicas: args.feed_replicas.into(),
        write_connections,
        telemetry: operator.telemetry.clone(),
    };
    let lifetime = args.lifetime;
    let result =
        farthing_projector::run(config, stop, || lifetime.report_ready(Vec::new(), operator.address)).await;
    result.context("the projector failed")
}
