//! `farthing gateway`: serves the forward endpoint, the REST API and the hosted pages.

mod prices;
mod provider_keys;
mod settings;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farthing_api::{Config, Gateways};

pub(crate) use self::settings::Settings;
use crate::database::{Database, KeyOverride, Nats};
use crate::lifetime::Lifetime;

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
    /// Build the URLs of hosted pages from `X-Forwarded-Host` and `X-Forwarded-Proto`. Use only behind a proxy that
    /// sets both headers; otherwise callers can forge them.
    #[arg(long, env = "FARTHING_TRUST_FORWARDED")]
    trust_forwarded: bool,
    /// Address to listen on for the other gateways of the instance. Keep it off the internet.
    #[arg(long, env = "FARTHING_GATEWAYS_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDR")]
    gateways_listen: SocketAddr,
    /// URL at which the other gateways reach that address; needed if they are on other machines and it is not the
    /// address itself.
    #[arg(long, env = "FARTHING_GATEWAYS_URL", value_name = "URL")]
    gateways_url: Option<String>,
    /// Take over the partitions of a gateway this many seconds after it died.
    #[arg(long, env = "FARTHING_LEASE_SECONDS", default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    lease_seconds: u64,
    /// Do not deliver webhooks; leave that to other gateways, such as those with access to the internet.
    #[arg(long, env = "FARTHING_NO_WEBHOOKS")]
    no_webhooks: bool,
    #[command(flatten)]
    lifetime: Lifetime,
    // Last, since clap puts flags that follow its groups under the heading of the last group.
    #[command(flatten)]
    settings: Settings,
}

/// Runs the role until shutdown.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = args.lifetime.watch_shutdown()?;
    let settings = args.settings;
    let config = Config {
        database_url: args.database.database_url,
        nats_url: args.nats.nats_url,
        listen: args.listen,
        server_key: args.key.server_key,
        provider_keys: settings.provider_keys()?,
        catalogue: settings.catalogue()?,
        settings: settings.request_settings(),
        sweep_after: Duration::from_secs(args.sweep_after_seconds),
        trust_forwarded: args.trust_forwarded,
        timeouts: settings.timeouts(Duration::from_secs(args.grace_seconds)),
        limits: settings.server_limits()?,
        queue: settings.queue()?,
        gateways: Gateways {
            listen: args.gateways_listen,
            url: args.gateways_url,
            lease: Duration::from_secs(args.lease_seconds),
        },
        webhooks: (!args.no_webhooks).then(|| settings.webhook_timing()),
        provider_hosts: settings.providers.provider_hosts,
        allow_addresses: settings.providers.allow_addresses,
        trusted_authorities: settings.providers.trusted_authorities,
    };
    let lifetime = args.lifetime;
    let result = farthing_api::run(config, stop, move |address| lifetime.report_ready(vec![address])).await;
    result.context("the gateway failed")
}
