//! `farthing dev`: runs a private test instance on this machine (`farthing_dev::launcher`).

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use farthing_dev::launcher::{self, Config, MockJournal, Servers};

use crate::database::KeyOverride;
use crate::gateway::Settings;
use crate::lifetime::Lifetime;

/// Flags of `dev`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Folder for all data. Created if it does not exist.
    #[arg(long, default_value = "farthing-data", value_name = "DIR")]
    data: PathBuf,
    /// Address of the first gateway. Port 0 picks a free port. Further gateways use other ports.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
    /// Number of gateways.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    gateways: u16,
    /// Number of projectors.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4))]
    projectors: u16,
    /// Run on a Citus cluster, of a coordinator and two workers, and on a cluster of three NATS servers. Citus must be
    /// installed.
    #[arg(long)]
    cluster: bool,
    /// End the open requests of a gateway after this many seconds without its heartbeat.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    sweep_after_seconds: u64,
    /// On shutdown, let calls in flight run for up to this many seconds.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    grace_seconds: u64,
    /// Do not write the mock provider's journal, for benchmarks.
    #[arg(long)]
    no_journal: bool,
    #[command(flatten)]
    key: KeyOverride,
    #[command(flatten)]
    lifetime: Lifetime,
    // Last, since clap puts flags that follow its groups under the heading of the last group.
    #[command(flatten)]
    settings: Settings,
}

/// Runs the instance until shutdown.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = args.lifetime.watch_shutdown()?;
    // Only the gateways use the prices; an invalid file is refused here, before anything is started.
    args.settings.catalogue()?;
    let config = Config {
        program: std::env::current_exe().context("cannot find the path of this program")?,
        data: args.data,
        listen: args.listen,
        gateways: args.gateways,
        projectors: args.projectors,
        servers: if args.cluster { Servers::Cluster } else { Servers::Single },
        sweep_after_seconds: args.sweep_after_seconds,
        grace_seconds: args.grace_seconds,
        mock_journal: if args.no_journal { MockJournal::Off } else { MockJournal::Write },
        server_key: args.key.server_key,
        gateway_arguments: args.settings.arguments(),
        gateway_environment: args.settings.environment()?,
        ready_file: args.lifetime.ready_file,
    };
    launcher::run(config, stop).await
}
