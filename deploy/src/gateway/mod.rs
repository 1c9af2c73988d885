//! `farthing gateway`: serves the forward endpoint, the REST API and the hosted pages.

mod provider_keys;
mod settings;
mod traces;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farthing_api::{Addresses, Config, Gateways, GatewaysUrl, Pages, PagesUrl};

pub(crate) use self::settings::{ProviderHosts, Settings};
use self::traces::TraceArgs;
use crate::database::{Database, KeyOverride};
use crate::lifetime::Lifetime;
use crate::log_format::LogFormat;
use crate::machine::{Machine, Threads};
use crate::nats::Nats;
use crate::operator_listener::OperatorArgs;
use crate::value_parsers::UnrepeatedUrl;

/// Flags of `gateway`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    key: KeyOverride,
    #[command(flatten)]
    nats: Nats,
    /// Address to listen on. Port 0 picks a free port.
    #[arg(long, env = "FARTHING_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDR")]
    listen: SocketAddr,
    /// End the open requests of another gateway after this many seconds without its heartbeat.
    #[arg(long, env = "FARTHING_SWEEP_AFTER_SECONDS", default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    sweep_after_seconds: u64,
    /// On shutdown, let calls in flight run for up to this many seconds. Then they are cut off and settled for what
    /// was delivered.
    #[arg(long, env = "FARTHING_GRACE_SECONDS", default_value_t = 30, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    grace_seconds: u64,
    /// On shutdown, serve for this many seconds more, while /readyz says that the gateway is not ready, so that load
    /// balancers take it out. Then the listeners close and --grace-seconds begins.
    #[arg(long, env = "FARTHING_DRAIN_SECONDS", default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=3_600))]
    drain_seconds: u64,
    /// Address to serve the hosted pages and the API reference at. They are served nowhere else. The default is the port
    /// after that of --listen.
    #[arg(long, env = "FARTHING_PAGES_LISTEN", value_name = "ADDR")]
    pages_listen: Option<SocketAddr>,
    /// URL at which browsers reach that address, such as `https://pay.example.com`. Required in live mode. The default is
    /// the address itself.
    #[arg(long, env = "FARTHING_PAGES_URL", hide_env_values = true, value_name = "URL", value_parser = UnrepeatedUrl::<PagesUrl>::new())]
    pages_url: Option<PagesUrl>,
    /// Address to listen on for the other gateways of the instance. Keep it off the internet.
    #[arg(long, env = "FARTHING_GATEWAYS_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDR")]
    gateways_listen: SocketAddr,
    /// URL at which the other gateways reach that address, such as `http://gateway-2.internal:8090`; needed if they are on
    /// other machines and it is not the address itself.
    #[arg(long, env = "FARTHING_GATEWAYS_URL", hide_env_values = true, value_name = "URL", value_parser = UnrepeatedUrl::<GatewaysUrl>::new())]
    gateways_url: Option<GatewaysUrl>,
    /// Take over the partitions of a gateway this many seconds after it died.
    #[arg(long, env = "FARTHING_LEASE_SECONDS", default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    lease_seconds: u64,
    /// Do not deliver webhooks; leave that to other gateways, such as those with access to the internet.
    #[arg(long, env = "FARTHING_NO_WEBHOOKS", value_parser = clap::builder::BoolishValueParser::new())]
    no_webhooks: bool,
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    lifetime: Lifetime,
    #[command(flatten)]
    traces: TraceArgs,
    // Last, since clap puts flags that follow its groups under the heading of the last group.
    #[command(flatten)]
    settings: Settings,
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
    let mut operator = args.operator.start("gateway").await?;
    operator.telemetry.traces = args.traces.start(&operator.telemetry.metrics)?;
    let traces = operator.telemetry.traces.clone();
    let threads = args.threads(&machine);
    let settings = args.settings;
    let limits = settings.limits.on(&machine)?;
    limits.log(&machine, threads);
    let config = Config {
        database_url: args.database.url()?,
        nats: args.nats.config()?,
        listen: args.listen,
        server_key: args.key.read()?,
        proof_key: settings.proof_key()?,
        provider_keys: settings.provider_keys()?,
        catalogue: settings.catalogue()?,
        settings: settings.request_settings(),
        drain: Duration::from_secs(args.drain_seconds),
        sweep_after: Duration::from_secs(args.sweep_after_seconds),
        pages: Pages { listen: args.pages_listen, url: args.pages_url },
        response_headers: settings.response_headers(),
        timeouts: settings.timeouts(Duration::from_secs(args.grace_seconds)),
        limits: limits.server,
        connections: settings.limits.connections()?,
        decoder_memory: limits.decoder_memory,
        stored_response_rate: limits.stored_response_rate,
        queue: limits.queue,
        gateways: Gateways {
            listen: args.gateways_listen,
            url: args.gateways_url,
            lease: Duration::from_secs(args.lease_seconds),
        },
        webhooks: (!args.no_webhooks).then(|| settings.webhook_timing()),
        provider_hosts: settings.providers.hosts.provider_hosts,
        allow_addresses: settings.providers.allow_addresses,
        dns_servers: settings.providers.dns_servers,
        name_lookups: limits.name_lookups,
        trusted_authorities: settings.providers.trusted_authorities,
        telemetry: operator.telemetry.clone(),
    };
    let (lifetime, operators) = (args.lifetime, operator.address);
    let ready = move |listen: Addresses| lifetime.report_ready(vec![listen.api, listen.pages], operators);
    let result = Box::pin(farthing_api::run(config, stop, ready)).await;
    traces.stop().await;
    result.context("the gateway failed")
}
