//! One gateway process: everything put together, started, and stopped in good order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn_with_state;
use farthing_core::command::RequestSettings;
use farthing_core::ids::{GatewayId, Mint};
use farthing_core::secret::{Mode, ServerKey};
use farthing_egress::{AddressGuard, connector, tls};
use farthing_log::appender::{self, Appender};
use farthing_log::clock::Clock;
use farthing_log::connect::{self, Role, redacted};
use farthing_log::reads::{PoolError, ReadPool, pool};
use farthing_log::refold;
use farthing_worker::lease;
use farthing_worker::payments::{self, Payments, TestProcessor};
use farthing_worker::sweeper::Sweeper;
use farthing_worker::webhooks::{Dispatcher, WebhookTiming};
use ipnet::IpNet;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::checkout;
use crate::docs;
use crate::forward::{self, Forwarder};
use crate::providers::catalogue::Catalogue;
use crate::providers::{ProviderHost, ProviderKey, Providers};
use crate::rest;
use crate::serve::serve;
use crate::timeouts::Timeouts;

/// Connections for reads.
const READ_CONNECTIONS: usize = 8;

/// Connections for telling webhooks.
const TELLING_CONNECTIONS: usize = 4;

/// Connections of the built-in test processor: it stands for somebody else's machine, so that one that does not answer keeps
/// no reader waiting.
const PAYING_CONNECTIONS: usize = 4;

/// How long settlements may take after the time of grace.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long calls may take to end that could not be settled.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(2);

const CLOCK: &str = "SELECT clock_timestamp()";

const INSTANCE: &str = "SELECT server_key, mode FROM ledger.instance";

/// What a gateway needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the log and the read models are.
    pub database_url: String,
    /// Where readers are woken; none to leave them to their polling.
    pub nats_url: Option<String>,
    /// Where to listen; port 0 means any free one.
    pub listen: SocketAddr,
    /// The key that hashes keys and derives secrets, in place of the one in the database.
    pub server_key: Option<ServerKey>,
    /// Addresses that may be called though they are not public.
    pub allow_addresses: Vec<IpNet>,
    /// PEM files of certificate authorities to trust beside this machine's.
    pub trusted_authorities: Vec<PathBuf>,
    /// Hosts that speak a built-in provider's dialect.
    pub provider_hosts: Vec<ProviderHost>,
    /// Keys of this instance, by provider: calls that bring none of their own travel with them.
    pub provider_keys: BTreeMap<String, ProviderKey>,
    /// What providers list for their models.
    pub catalogue: Catalogue,
    /// What decides about admission.
    pub settings: RequestSettings,
    /// After this time without a sign of life a gateway's open requests are ended.
    pub sweep_after: Duration,
    /// Does a proxy in front tell, in `X-Forwarded-Host` and `X-Forwarded-Proto`, what callers address?
    pub trust_forwarded: bool,
    /// The bounds on waiting.
    pub timeouts: Timeouts,
    /// How webhooks are told, and told again; none where other gateways tell them.
    pub webhooks: Option<WebhookTiming>,
}

/// Why a gateway does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// Postgres.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The pool of connections.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The database is not a migrated one.
    #[error("the database says nothing of the instance; run `farthing migrate`")]
    NotMigrated,
    /// What is stored is in another program's shape.
    #[error("the {0} are of another version of this program; run `farthing migrate`")]
    Outdated(&'static str),
    /// TLS towards providers.
    #[error("TLS: {0}")]
    Tls(#[from] tls::Error),
}

/// Runs a gateway until `stop`; `ready` is told the address once it listens.
pub async fn run(
    config: Config,
    stop: CancellationToken,
    ready: impl FnOnce(SocketAddr) + Send,
) -> Result<(), Error> {
    let clock = Arc::new(Clock::default());
    let (server_key, mode) = instance(&config, &clock).await?;
    let mint = Arc::new(Mint::default());
    let gateway_id = GatewayId::new(mint.next(clock.now()));
    let tasks = TaskTracker::new();
    // The appender outlives the calls that need it.
    let abort = CancellationToken::new();
    let ledger = Appender::start(
        appender::AppenderConfig {
            database_url: config.database_url.clone(),
            role: Role::Gateway,
            writer: gateway_id.to_string(),
            nats_url: config.nats_url.clone(),
        },
        abort.clone(),
        &tasks,
    );
    let reads = ReadPool::new(pool(&config.database_url, READ_CONNECTIONS)?);
    let telling = pool(&config.database_url, TELLING_CONNECTIONS)?;
    let paying = pool(&config.database_url, PAYING_CONNECTIONS)?;
    let settings = config.settings;
    let timeouts = config.timeouts;
    let providers = Providers::new(config.provider_hosts, config.provider_keys, config.catalogue);
    let payments = Arc::new(Payments::new(
        ledger.clone(),
        reads.clone(),
        Arc::clone(&clock),
        Arc::clone(&mint),
        Arc::new(TestProcessor::new(paying)),
    ));
    let app = Arc::new(App {
        ledger,
        reads,
        server_key,
        mode,
        mint,
        clock,
        gateway_id,
        providers,
        settings,
        trust_forwarded: config.trust_forwarded,
        timeouts,
        payments,
    });

    let (calls, hurry) = (TaskTracker::new(), CancellationToken::new());
    let guard = Arc::new(AddressGuard::new(config.allow_addresses));
    let tls = tls::client_config(&config.trusted_authorities)?;
    let dispatcher = config.webhooks.map(|timing| {
        let connector = connector(&guard, tls.clone(), timeouts.connect);
        Dispatcher::new(Arc::new(rest::Payloads), app.server_key.clone(), telling, connector, timing)
    });
    let forwarder =
        Arc::new(Forwarder::new(Arc::clone(&app), guard, tls, calls.clone(), hurry.clone(), abort.clone()));
    let listener =
        TcpListener::bind(config.listen).await.map_err(|error| Error::Listen(config.listen, error))?;
    let address = listener.local_addr().map_err(|error| Error::Listen(config.listen, error))?;
    let database_url = config.database_url;
    let (sweep_after, clock) = (config.sweep_after, || Arc::clone(&app.clock));
    let heartbeat = lease::heartbeat(gateway_id, clock(), database_url.clone(), sweep_after, abort.clone());
    tasks.spawn(heartbeat);
    let sweeper = Sweeper::new(gateway_id, app.ledger.clone(), clock(), database_url, sweep_after);
    tasks.spawn(sweeper.run(stop.clone()));
    tasks.spawn(payments::run(Arc::clone(&app.payments), stop.clone()));
    if let Some(dispatcher) = dispatcher {
        tasks.spawn(dispatcher.run(stop.clone()));
    }
    ready(address);
    tracing::info!(%address, %gateway_id, "the gateway listens");

    let until = serve(listener, &app, router(&app, forwarder), stop.clone()).await;
    calls.close();
    // Answers whose callers have gone are read on while there is time; then each is settled as far as it came.
    let _ = tokio::time::timeout_at(until, calls.wait()).await;
    hurry.cancel();
    if tokio::time::timeout(SETTLE_TIMEOUT, calls.wait()).await.is_err() {
        tracing::warn!("calls are left open, to be swept by another gateway");
    } else {
        lease::release(&app.reads, gateway_id).await;
    }
    abort.cancel();
    tasks.close();
    tasks.wait().await;
    // Each call that could not be settled says what it came to.
    if tokio::time::timeout(LAST_WORDS_TIMEOUT, calls.wait()).await.is_err() {
        tracing::error!("calls did not end");
    }
    Ok(())
}

fn router(app: &Arc<App>, forwarder: Arc<Forwarder>) -> Router {
    docs::check();
    let standard = Router::from(rest::routes().merge(docs::document_route()))
        .method_not_allowed_fallback(rest::method_not_allowed)
        .fallback(rest::route_not_found);
    let standard = Router::new()
        .nest("/v1", standard)
        .merge(docs::routes())
        .merge(checkout::routes())
        .method_not_allowed_fallback(rest::method_not_allowed)
        .fallback(rest::route_not_found)
        .layer(from_fn_with_state(Arc::clone(app), rest::keep_conventions))
        .with_state(Arc::clone(app));
    let forwarding = Router::from(forward::routes()).with_state(forwarder);
    Router::new().nest("/v1", forwarding).merge(standard)
}

/// The instance's key and mode, from a database that is in this program's shape; the clock is set on the way.
async fn instance(config: &Config, clock: &Clock) -> Result<(ServerKey, Mode), Error> {
    let client = connect::connect(&config.database_url, Role::Gateway).await?;
    let asked = Instant::now();
    let theirs = client.query_one(CLOCK, &[]).await?.try_get(0)?;
    clock.measured(theirs, asked.elapsed());
    let row = client.query_opt(INSTANCE, &[]).await?.ok_or(Error::NotMigrated)?;
    if !refold::is_current(&client).await? {
        return Err(Error::Outdated("states"));
    }
    if let Some(model) = farthing_projector::outdated(&client).await?.first() {
        return Err(Error::Outdated(model.name()));
    }
    let key = config.server_key.clone().or_else(|| ServerKey::from_hex(row.get(0)));
    let mode = if row.get::<_, &str>(1) == "test" { Mode::Test } else { Mode::Live };
    Ok((key.ok_or(Error::NotMigrated)?, mode))
}
