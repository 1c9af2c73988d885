//! One gateway process: builds its parts, starts them and shuts them down in order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn_with_state;
use farthing_core::command::RequestSettings;
use farthing_core::ids::{GatewayId, Mint};
use farthing_core::partition::Partitions;
use farthing_core::secret::{Mode, ServerKey};
use farthing_egress::{AddressGuard, connector, tls};
use farthing_log::appender::QueueLimits;
use farthing_log::clock::Clock;
use farthing_log::connect::{self, Role, redacted};
use farthing_log::leases::Leads;
use farthing_log::ledger::{Ledger, LedgerConfig, Peers, Stop};
use farthing_log::reads::{PoolError, ReadPool, pool};
use farthing_log::{generations, partitions};
use farthing_projector::Schemas;
use farthing_worker::lease;
use farthing_worker::payments::{self, Payments, Processor, TestProcessor};
use farthing_worker::sweeper::Sweeper;
use farthing_worker::webhooks::{Dispatcher, WebhookTiming};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpSocket};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::checkout;
use crate::docs;
use crate::forward::{self, Forwarder};
use crate::known_keys::KnownKeys;
use crate::peers::{self, HttpPeers};
use crate::providers::catalogue::Catalogue;
use crate::providers::{ProviderHost, ProviderKey, Providers};
use crate::rest;
use crate::serve::{ServerLimits, serve};
use crate::timeouts::Timeouts;

/// Connections for reads.
const READ_CONNECTIONS: usize = 8;

/// Connections for delivering webhooks.
const DELIVERY_CONNECTIONS: usize = 4;

/// Connections of the built-in test processor. They are separate because it stands in for an external service, whose
/// delays must not block reads.
const PAYING_CONNECTIONS: usize = 4;

/// How long settlements may take after the grace period.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two looks at what a gateway of a new release waits for.
const UPGRADE_POLL: Duration = Duration::from_millis(200);

/// How long unsettled calls may take to log their facts.
const UNSETTLED_LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of an address that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// The most connections of other gateways. Each carries one message at a time; while a partition hangs, the messages to it
/// of each other gateway hold up to about 280.
const GATEWAY_CONNECTIONS: usize = 4_096;

/// The time for another gateway to send the head of a message, with the idle time before it: longer than another gateway
/// keeps an idle connection.
const GATEWAY_HEAD_TIMEOUT: Duration = Duration::from_mins(1);

const CLOCK: &str = "SELECT clock_timestamp()";

const INSTANCE: &str = "SELECT server_key, mode FROM ledger.instance";

/// The configuration of a gateway.
#[derive(Debug, Clone)]
pub struct Config {
    /// The Postgres database of the log and the read models.
    pub database_url: String,
    /// The NATS server for wake-up notifications; `None` leaves readers to their polling.
    pub nats_url: Option<String>,
    /// The address to listen on; port 0 means any free port.
    pub listen: SocketAddr,
    /// The key that hashes keys and derives secrets; overrides the one in the database.
    pub server_key: Option<ServerKey>,
    /// Non-public addresses that may be called.
    pub allow_addresses: Vec<IpNet>,
    /// PEM files of certificate authorities to trust besides the system's.
    pub trusted_authorities: Vec<PathBuf>,
    /// Hosts that speak a built-in provider's dialect.
    pub provider_hosts: Vec<ProviderHost>,
    /// Managed provider keys by provider, for calls without a provider key of their own.
    pub provider_keys: BTreeMap<String, ProviderKey>,
    /// The list prices of models.
    pub catalogue: Catalogue,
    /// The settings of admission and holds.
    pub settings: RequestSettings,
    /// After this time without a heartbeat, a gateway's open requests are ended.
    pub sweep_after: Duration,
    /// Whether to trust `X-Forwarded-Host` and `X-Forwarded-Proto`, which a reverse proxy sets.
    pub trust_forwarded: bool,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The limits of connections and calls in flight.
    pub limits: ServerLimits,
    /// The bounds of each partition's queue of commands.
    pub queue: QueueLimits,
    /// How the gateways of the instance work together.
    pub gateways: Gateways,
    /// The timing of webhook deliveries and their retries; `None` if this gateway delivers none.
    pub webhooks: Option<WebhookTiming>,
}

/// How the gateways of an instance work together.
#[derive(Debug, Clone)]
pub struct Gateways {
    /// The address to listen on for the other gateways; port 0 means any free port.
    pub listen: SocketAddr,
    /// The URL at which the other gateways reach that address; `None` if it is the address itself.
    pub url: Option<String>,
    /// How long the lease of a partition lasts without a renewal.
    pub lease: Duration,
}

/// Why a gateway cannot run.
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
    /// The database is not migrated.
    #[error("the database has no instance; run `farthing migrate`")]
    NotMigrated,
    /// A newer program has led a partition.
    #[error("the log belongs to a newer version of this program, which has begun to write it")]
    Outdated,
    /// A read model has no generation for this program.
    #[error(transparent)]
    ReadModels(#[from] farthing_projector::Error),
    /// Other gateways cannot reach the address for them.
    #[error("other gateways cannot reach {0}: give the URL at which they reach this gateway")]
    NoUrl(SocketAddr),
    /// TLS towards providers.
    #[error("TLS: {0}")]
    Tls(#[from] tls::Error),
}

/// Runs a gateway until `stop`. Calls `ready` with the address once it listens.
pub async fn run(
    config: Config,
    stop: CancellationToken,
    ready: impl FnOnce(SocketAddr) + Send,
) -> Result<(), Error> {
    // Before it leads: a gateway that nobody can reach must not take partitions over.
    let socket = bind(config.listen)?;
    let peer_socket = bind(config.gateways.listen)?;
    let clock = Arc::new(Clock::default());
    let found = stop.run_until_cancelled(instance(&config, &clock)).await;
    let Some(Instance { server_key, mode, partitions, schemas }) = found.transpose()? else { return Ok(()) };
    let mint = Arc::new(Mint::default());
    let gateway_id = GatewayId::new(mint.next(clock.now()));
    let tasks = TaskTracker::new();
    // The ledger outlives the calls that need it.
    let abort = CancellationToken::new();
    // Also if the gateway cannot start: the ledger's threads would keep the process.
    let _end = abort.clone().drop_guard();
    let read_pool = ReadPool::new(pool(&config.database_url, READ_CONNECTIONS)?);
    let (peer_listener, peer_url) = listen_for_gateways(peer_socket, &config.gateways)?;
    let peers = Arc::new(HttpPeers::new(&server_key, abort.clone(), &tasks));
    let ledger_config = LedgerConfig {
        database_url: config.database_url.clone(),
        role: Role::Gateway,
        writer: gateway_id.to_string(),
        nats_url: config.nats_url.clone(),
        queue: config.queue,
        reads: read_pool.clone(),
        clock: Arc::clone(&clock),
        peers: Arc::clone(&peers) as Arc<dyn Peers>,
        address: Some(peer_url),
        delivers: config.webhooks.is_some(),
        leads: Leads::Share,
        lease: config.gateways.lease,
    };
    let leaving = Stop { leave: stop.clone(), end: abort.clone() };
    let ledger = Ledger::start(ledger_config, partitions, &leaving, &tasks);
    let delivery_pool = pool(&config.database_url, DELIVERY_CONNECTIONS)?;
    let settings = config.settings;
    let timeouts = config.timeouts;
    let providers = Providers::new(config.provider_hosts, config.provider_keys, config.catalogue);
    let payments = Arc::new(Payments::new(
        ledger.clone(),
        read_pool.clone(),
        Arc::clone(&clock),
        Arc::clone(&mint),
        processor(mode, &config.database_url)?,
    ));
    let app = Arc::new(App {
        ledger,
        reads: read_pool,
        schemas: schemas.clone(),
        partitions,
        server_key,
        mode,
        mint,
        clock,
        gateway_id,
        providers,
        peers,
        settings,
        trust_forwarded: config.trust_forwarded,
        timeouts,
        known_keys: KnownKeys::default(),
        payments,
    });

    let (calls, stop_waiting) = (TaskTracker::new(), CancellationToken::new());
    let guard = Arc::new(AddressGuard::new(config.allow_addresses));
    let tls = tls::client_config(&config.trusted_authorities)?;
    let dispatcher = config.webhooks.map(|timing| {
        let connector = connector(&guard, tls.clone(), timeouts.connect);
        let payloads = Arc::new(rest::Payloads);
        let ledger = app.ledger.clone();
        Dispatcher::new(payloads, app.server_key.clone(), ledger, (delivery_pool, schemas), connector, timing)
    });
    let forwarder = Arc::new(Forwarder::new(
        Arc::clone(&app),
        guard,
        tls,
        calls.clone(),
        stop_waiting.clone(),
        abort.clone(),
    ));
    tasks.spawn(serve_gateways(
        peer_listener,
        Arc::clone(&app),
        peers::router(app.ledger.clone(), &app.server_key, standard(&app)),
        abort.clone(),
    ));
    let _ = stop.run_until_cancelled(wait_for_states(&app.reads)).await;
    let listener = socket.listen(BACKLOG).map_err(|error| Error::Listen(config.listen, error))?;
    let address = listener.local_addr().map_err(|error| Error::Listen(config.listen, error))?;
    let database_url = config.database_url;
    let (sweep_after, clock) = (config.sweep_after, || Arc::clone(&app.clock));
    let heartbeat = lease::heartbeat(
        gateway_id,
        clock(),
        database_url.clone(),
        app.schemas.reader_locks(),
        sweep_after,
        abort.clone(),
    );
    tasks.spawn(heartbeat);
    let sweeper = Sweeper::new(gateway_id, app.ledger.clone(), clock(), database_url, sweep_after);
    tasks.spawn(sweeper.run(stop.clone()));
    tasks.spawn(payments::run(Arc::clone(&app.payments), stop.clone()));
    if let Some(dispatcher) = dispatcher {
        tasks.spawn(dispatcher.run(stop.clone()));
    }
    ready(address);
    tracing::info!(event = "gateway.listening", %address, %gateway_id, "the gateway is listening");

    let until = serve(listener, &app, router(&app, forwarder), config.limits, timeouts, stop.clone()).await;
    calls.close();
    // Drains responses within the grace period, then settles each by the usage reported so far.
    let _ = tokio::time::timeout_at(until, calls.wait()).await;
    stop_waiting.cancel();
    if tokio::time::timeout(SETTLE_TIMEOUT, calls.wait()).await.is_err() {
        tracing::warn!(
            event = "gateway.calls_left_open",
            "calls are left open; the sweeper of another gateway will end them"
        );
    } else {
        lease::release(&app.reads, gateway_id).await;
    }
    abort.cancel();
    tasks.close();
    tasks.wait().await;
    // Each unsettled call logs its facts.
    if tokio::time::timeout(UNSETTLED_LOG_TIMEOUT, calls.wait()).await.is_err() {
        tracing::error!(event = "gateway.calls_not_ended", "calls did not end before the timeout");
    }
    Ok(())
}

/// The payment processor. There is none for real money yet: the test processor, which takes public card numbers, exists
/// in test mode alone.
fn processor(mode: Mode, database_url: &str) -> Result<Option<Arc<dyn Processor>>, Error> {
    Ok(match mode {
        Mode::Live => None,
        Mode::Test => Some(Arc::new(TestProcessor::new(pool(database_url, PAYING_CONNECTIONS)?))),
    })
}

fn router(app: &Arc<App>, forwarder: Arc<Forwarder>) -> Router {
    docs::check();
    let forwarding = Router::from(forward::routes()).with_state(forwarder);
    Router::new().nest("/v1", forwarding).merge(standard(app))
}

/// Everything but the forward endpoint.
fn standard(app: &Arc<App>) -> Router {
    let standard = Router::from(rest::routes().merge(docs::document_route()))
        .method_not_allowed_fallback(rest::method_not_allowed)
        .fallback(rest::route_not_found);
    Router::new()
        .nest("/v1", standard)
        .merge(docs::routes())
        .merge(checkout::routes())
        .method_not_allowed_fallback(rest::method_not_allowed)
        .fallback(rest::route_not_found)
        .layer(from_fn_with_state(Arc::clone(app), rest::keep_conventions))
        .with_state(Arc::clone(app))
}

/// A socket at `address`, or an error if it is in use. Callers are refused until the socket listens.
fn bind(address: SocketAddr) -> Result<TcpSocket, Error> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of an earlier process that are being closed do not keep the address.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(socket)
    };
    bind().map_err(|error| Error::Listen(address, error))
}

/// Listens for the other gateways. Returns the URL at which they reach this one.
fn listen_for_gateways(socket: TcpSocket, gateways: &Gateways) -> Result<(TcpListener, String), Error> {
    let failed = |error| Error::Listen(gateways.listen, error);
    let listener = socket.listen(BACKLOG).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    match &gateways.url {
        Some(url) => Ok((listener, url.trim_end_matches('/').to_owned())),
        None if address.ip().is_unspecified() => Err(Error::NoUrl(address)),
        None => Ok((listener, format!("http://{address}"))),
    }
}

/// Serves the other gateways until `stop`. What they ask then is answered within [`UNSETTLED_LOG_TIMEOUT`].
async fn serve_gateways(listener: TcpListener, app: Arc<App>, router: Router, stop: CancellationToken) {
    let limits = ServerLimits { connections: GATEWAY_CONNECTIONS, calls: GATEWAY_CONNECTIONS };
    let timeouts = Timeouts { head: GATEWAY_HEAD_TIMEOUT, grace: UNSETTLED_LOG_TIMEOUT, ..app.timeouts };
    serve(listener, &app, router, limits, timeouts, stop).await;
}

/// What the database says about the instance.
struct Instance {
    server_key: ServerKey,
    mode: Mode,
    partitions: Partitions,
    schemas: Schemas,
}

/// The instance's key, mode and partitions, after checking that the database has this program's shape. Also sets the clock.
async fn instance(config: &Config, clock: &Clock) -> Result<Instance, Error> {
    let client = connect::connect(&config.database_url, Role::Gateway).await?;
    let asked = Instant::now();
    let theirs = client.query_one(CLOCK, &[]).await?.try_get(0)?;
    clock.measured(theirs, asked.elapsed());
    let row = client.query_opt(INSTANCE, &[]).await?.ok_or(Error::NotMigrated)?;
    if generations::has_newer_shape(&client).await? {
        return Err(Error::Outdated);
    }
    let schemas = wait_for_read_models(&client).await?;
    let key = config.server_key.clone().or_else(|| ServerKey::from_hex(row.get(0)));
    let mode = if row.get::<_, &str>(1) == "test" { Mode::Test } else { Mode::Live };
    let partitions = partitions::load(&client).await?.ok_or(Error::NotMigrated)?;
    Ok(Instance { server_key: key.ok_or(Error::NotMigrated)?, mode, partitions, schemas })
}

/// The schemas of the read models, once a projector of this release has built them.
async fn wait_for_read_models(client: &Client) -> Result<Schemas, Error> {
    let mut said = None;
    loop {
        let unbuilt = farthing_projector::unbuilt(client).await?;
        let Some(model) = unbuilt.first() else { return Ok(Schemas::load(client).await?) };
        if said != Some(unbuilt.len()) {
            tracing::warn!(
                event = "gateway.waits_for_read_models",
                count = unbuilt.len(),
                first = model.name(),
                "read models of this release are not built yet; a projector of this release builds them"
            );
            said = Some(unbuilt.len());
        }
        tokio::time::sleep(UPGRADE_POLL).await;
    }
}

/// Waits until the partitions are led with the states of this release, whose build has begun.
async fn wait_for_states(reads: &ReadPool) {
    let mut said = false;
    loop {
        let live = async {
            let client = reads.connection().await.ok()?;
            generations::are_live(&client).await.ok()
        };
        if live.await == Some(true) {
            return;
        }
        if !said {
            tracing::warn!(
                event = "gateway.waits_for_states",
                "the states of this release are not built yet; this gateway listens once they are"
            );
            said = true;
        }
        tokio::time::sleep(UPGRADE_POLL).await;
    }
}
