//! `farthing dev`: runs a private test instance on this machine (`farthing_dev::launcher`).

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use farthing_api::PagesUrl;
use farthing_dev::launcher::{self, Config, GivenServers, MockJournal, Servers};
use farthing_log::nats_names::NatsNames;

use crate::database::KeyOverride;
use crate::gateway::Settings;
use crate::lifetime::Lifetime;
use crate::log_format::LogFormat;
use crate::value_parsers::UnrepeatedUrl;

/// Flags of `dev`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Folder for all data. Created if it does not exist.
    #[arg(long, default_value = "farthing-data", value_name = "DIR")]
    data: PathBuf,
    /// Address of the first gateway. Port 0 picks a free port. Further gateways use other ports.
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
    /// Address of the hosted pages and the API reference. The default is the port after that of --listen. Further
    /// gateways use other ports.
    #[arg(long, value_name = "ADDR")]
    pages_listen: Option<SocketAddr>,
    /// URL of the hosted pages. The default is that address.
    #[arg(long, value_name = "URL", value_parser = UnrepeatedUrl::<PagesUrl>::new())]
    pages_url: Option<PagesUrl>,
    /// Number of gateways.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    gateways: u16,
    /// Number of projectors.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4))]
    projectors: u16,
    /// Run on a Citus cluster, of a coordinator and two workers, and on a cluster of three NATS servers. Citus must be
    /// installed.
    #[arg(long, conflicts_with_all = ["database_url", "nats_url"])]
    cluster: bool,
    /// Use this Postgres database, as its owner, instead of starting a server: postgres://USER:PASSWORD@HOST:PORT/NAME. It
    /// must exist, and is migrated in test mode. Prefer the variable to the command line, which every user of this machine
    /// can see.
    #[arg(long, env = "FARTHING_DEV_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
    /// Use these NATS servers, with JetStream, instead of starting one: nats://HOST:PORT, with commas between those of a
    /// cluster.
    #[arg(long, env = "FARTHING_DEV_NATS_URL", hide_env_values = true, value_name = "URL")]
    nats_url: Option<String>,
    /// Begin the names of all streams and subjects at NATS with this.
    #[arg(long, env = "FARTHING_NATS_PREFIX", value_name = "NAME")]
    nats_prefix: Option<NatsNames>,
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

impl Args {
    /// The format of the log of every process.
    pub(crate) const fn log_format(&self) -> LogFormat {
        self.lifetime.log_format
    }
}

/// Runs the instance until shutdown.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = args.lifetime.watch_shutdown()?;
    let log_format = args.log_format().name();
    // Only the gateways use the prices; an invalid file is refused here, before anything is started.
    args.settings.catalogue()?;
    let config = Config {
        program: std::env::current_exe().context("cannot find the path of this program")?,
        data: args.data,
        listen: args.listen,
        pages_listen: args.pages_listen,
        pages_url: args.pages_url.map(|url| url.to_string()),
        gateways: args.gateways,
        projectors: args.projectors,
        servers: if args.cluster { Servers::Cluster } else { Servers::Single },
        given: GivenServers {
            database_url: args.database_url,
            nats_url: args.nats_url,
            nats_prefix: args.nats_prefix.map(|names| names.to_string()),
        },
        sweep_after_seconds: args.sweep_after_seconds,
        grace_seconds: args.grace_seconds,
        mock_journal: if args.no_journal { MockJournal::Off } else { MockJournal::Write },
        server_key: args.key.read()?,
        gateway_arguments: args.settings.arguments(),
        gateway_environment: args.settings.environment()?,
        log_format,
        ready_file: args.lifetime.ready_file,
    };
    launcher::run(config, stop).await
}
