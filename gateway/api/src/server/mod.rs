//! One gateway process: builds its parts, starts them and shuts them down in order.

mod config;
mod connections;
mod instance;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use deadpool_postgres::Pool;
use farthing_core::ids::{GatewayId, Mint};
use farthing_core::secret::Mode;
use farthing_egress::{AddressGuard, Names, Places, connector, tls};
use farthing_log::clock::Clock;
use farthing_log::connect::Role;
use farthing_log::leases::{Leads, LedPartitions};
use farthing_log::ledger::{Ledger, LedgerConfig, Peers, Stop};
use farthing_log::metrics::{LedgerMetrics, register_backlogs, register_pools};
use farthing_log::own_thread;
use farthing_log::probe;
use farthing_log::pulse::Pulse;
use farthing_log::reads::{ReadPool, close_idle, pool, pool_by_keys};
use farthing_telemetry::{Health, WasServing};
use farthing_worker::lease;
use farthing_worker::payments::{self, PaymentMetrics, Payments, Processor, TestProcessor};
use farthing_worker::sweeper::Sweeper;
use farthing_worker::webhooks::{Dispatcher, WebhookMetrics};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::config::{Config, Error, Gateways};
pub(crate) use self::connections::turns;
pub use self::connections::{
    ConnectionSettings, PAYING as PAYING_CONNECTIONS, ReadsPerMerchant, share as connection_share,
};
use self::instance::{Instance, instance, wait_for_states};
use crate::app::App;
use crate::body_memory::BodyMemory;
use crate::checkout::{self, Visits};
use crate::docs;
use crate::forward::{self, Decoders, Forwarder, ResponseHeaders};
use crate::known_keys::KnownKeys;
use crate::metrics::{ApiMetrics, Listener};
use crate::pages::{Pages, PagesUrl};
use crate::peers::{self, HttpPeers};
use crate::providers::Providers;
use crate::read_turns::ReadTurns;
use crate::rest::{self, RateLimits};
use crate::serve::{ServerLimits, serve};
use crate::timeouts::Timeouts;

/// How long settlements may take after the grace period.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long unsettled calls may take to log their facts.
const UNSETTLED_LOG_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a gateway that stops waits at most for others to lead what it led.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it still answers other gateways then, on connections that they have. They look for the new leader as soon as
/// they are told that it moved, or find that they cannot connect.
const FAREWELL: Duration = Duration::from_secs(1);

/// The connections of an address that may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// The most connections of other gateways. Each carries one message at a time; while a partition hangs, the messages to it
/// of each other gateway hold up to about 280.
const GATEWAY_CONNECTIONS: usize = 4_096;

/// The most connections to the address for other gateways that have not shown the token.
const STRANGERS: usize = 512;

/// The time for another gateway to send the head of a message, with the idle time before it: longer than another gateway
/// keeps an idle connection.
const GATEWAY_HEAD_TIMEOUT: Duration = Duration::from_mins(1);

/// The addresses at which a gateway listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// Of the API.
    pub api: SocketAddr,
    /// Of the hosted pages and the API reference.
    pub pages: SocketAddr,
}

/// Runs a gateway until `stop`, and for the time in which load balancers notice. Calls `ready` with its addresses once it
/// listens.
pub async fn run(
    config: Config,
    stop: CancellationToken,
    ready: impl FnOnce(Addresses) + Send,
) -> Result<(), Error> {
    // Before it leads: a gateway that nobody can reach must not take partitions over.
    may_forward_headers(&config)?;
    let socket = bind(config.listen)?;
    let pages_address = config.pages.address(config.listen);
    let pages_socket = bind(pages_address)?;
    let peer_socket = bind(config.gateways.listen)?;
    let decoders = Decoders::start(config.decoder_memory).map_err(Error::Thread)?;
    let clock = Arc::new(Clock::default());
    let (metrics, health) = (config.telemetry.metrics.clone(), config.telemetry.health.clone());
    let stop = after_drain(stop, config.drain, &health);
    health.starting("waits for Postgres and the read models of this release");
    let found = stop.run_until_cancelled(instance(&config, &clock)).await;
    let Some(Instance { server_key, mode, partitions, schemas, connections }) = found.transpose()? else {
        return Ok(());
    };
    let pages_url = pages_url(config.pages.url, mode, &pages_socket)?;
    let mint = Arc::new(Mint::default());
    let gateway_id = GatewayId::new(mint.next(clock.now()));
    let tasks = TaskTracker::new();
    // The ledger outlives the calls that need it.
    let abort = CancellationToken::new();
    // Also if the gateway cannot start: the ledger's threads would keep the process.
    let _end = abort.clone().drop_guard();
    let pool_of_reads = pool(&config.database_url, connections.reads)?;
    let read_pool = ReadPool::new(pool_of_reads.clone());
    let (peer_listener, peer_url) = listen_for_gateways(peer_socket, &config.gateways)?;
    let peers = Arc::new(HttpPeers::new(&server_key, abort.clone(), &tasks));
    let ledger_config = LedgerConfig {
        database_url: config.database_url.clone(),
        role: Role::Gateway,
        writer: gateway_id.to_string(),
        nats: config.nats.clone(),
        queue: config.queue,
        reads: read_pool.clone(),
        clock: Arc::clone(&clock),
        peers: Arc::clone(&peers) as Arc<dyn Peers>,
        address: Some(peer_url),
        delivers: config.webhooks.is_some(),
        leads: Leads::Share,
        lease: config.gateways.lease,
        metrics: Arc::new(LedgerMetrics::new(&metrics)),
    };
    let leaving = Stop { leave: stop.clone(), end: abort.clone() };
    let ledger = Ledger::start(ledger_config, partitions, &leaving, &tasks);
    add_checks(&health, &read_pool, &ledger.led());
    register_backlogs(&metrics, &ledger.led(), &ledger.backlogs());
    // Without deliveries it opens none.
    let delivery_pool = pool_by_keys(&config.database_url, connections.deliveries.max(1))?;
    let paying_pool = paying_pool(mode, &config.database_url, connections.paying)?;
    let mut pools = vec![("webhooks", delivery_pool.clone())];
    pools.extend(paying_pool.clone().map(|pool| ("payments", pool)));
    register_pools(&metrics, &read_pool, pools.clone());
    let pools = pools.into_iter().map(|(_, pool)| pool).chain([pool_of_reads]).collect();
    let until = abort.clone();
    tasks.spawn(async move { until.run_until_cancelled(close_idle(pools)).await });
    let settings = config.settings;
    let timeouts = config.timeouts;
    let providers = Providers::new(config.provider_hosts, config.provider_keys, config.catalogue);
    let payments = Arc::new(Payments::new(
        ledger.clone(),
        read_pool.clone(),
        Arc::clone(&clock),
        Arc::clone(&mint),
        paying_pool.map(|pool| Arc::new(TestProcessor::new(pool)) as Arc<dyn Processor>),
        PaymentMetrics::new(&metrics),
    ));
    let app = Arc::new(App {
        ledger,
        reads: read_pool,
        read_turns: ReadTurns::new(connections.reads, connections.reads_per_merchant),
        schemas: schemas.clone(),
        partitions,
        server_key,
        mode,
        mint,
        clock,
        gateway_id,
        proof_key: config.proof_key,
        providers,
        peers,
        settings,
        pages_url,
        response_headers: config.response_headers,
        timeouts,
        known_keys: KnownKeys::new(connections.reads, config.limits.calls),
        visits: Visits::default(),
        rate_limits: RateLimits::new(connections.reads),
        body_memory: BodyMemory::default(),
        payments,
        metrics: ApiMetrics::new(&metrics),
        traces: config.telemetry.traces.clone(),
    });

    let (calls, stop_waiting) = (TaskTracker::new(), CancellationToken::new());
    let guard = Arc::new(AddressGuard::new(config.allow_addresses));
    let tls = tls::client_config(&config.trusted_authorities)?;
    let ServerLimits { calls: all, calls_per_merchant: of_one, .. } = config.limits;
    // A call may wait so long for its provider, which may read nothing meanwhile.
    let places = Places::new(all, of_one.unwrap_or(all), timeouts.answer.max(timeouts.silence));
    let names = Names::new(&config.dns_servers, config.name_lookups);
    let connector = connector(&guard, &names, tls, timeouts.connect, places);
    let dispatcher = config.webhooks.map(|timing| {
        let payloads = Arc::new(rest::Payloads);
        let ledger = app.ledger.clone();
        Dispatcher::new(
            payloads,
            app.server_key.clone(),
            ledger,
            (delivery_pool, schemas),
            connector.clone(),
            (timing, WebhookMetrics::new(&metrics)),
        )
    });
    let forwarder = Arc::new(Forwarder::new(
        Arc::clone(&app),
        (guard, connector),
        calls.clone(),
        stop_waiting.clone(),
        abort.clone(),
        decoders,
        (config.stored_response_rate, stop.clone()),
    ));
    forwarder.register(&metrics);
    let farewell = abort.child_token();
    tasks.spawn(serve_gateways(
        peer_listener,
        Arc::clone(&app),
        peers::router(app.ledger.clone(), app.traces.clone(), &app.server_key, standard(&app)),
        (farewell.clone(), abort.clone()),
    ));
    health.starting("waits for the states of this release");
    let _ = stop.run_until_cancelled(wait_for_states(&app.reads)).await;
    let listener = socket.listen(BACKLOG).map_err(|error| Error::Listen(config.listen, error))?;
    let address = listener.local_addr().map_err(|error| Error::Listen(config.listen, error))?;
    let failed = |error| Error::Listen(pages_address, error);
    let pages_listener = pages_socket.listen(BACKLOG).map_err(failed)?;
    let addresses = Addresses { api: address, pages: pages_listener.local_addr().map_err(failed)? };
    let database_url = config.database_url;
    let (sweep_after, clock) = (config.sweep_after, || Arc::clone(&app.clock));
    let (beats, url, locks) = (clock(), database_url.clone(), app.schemas.reader_locks());
    let until = abort.clone();
    let pulse = Pulse::start(sweep_after, until.clone(), &tasks);
    own_thread::spawn(&tasks, "heartbeats", move || {
        lease::heartbeat(gateway_id, pulse, beats, url, locks, sweep_after, until)
    });
    let sweeper = Sweeper::new(gateway_id, app.ledger.clone(), clock(), database_url, sweep_after);
    tasks.spawn(sweeper.run(stop.clone()));
    tasks.spawn(payments::run(Arc::clone(&app.payments), stop.clone()));
    if let Some(dispatcher) = dispatcher {
        tasks.spawn(dispatcher.run(stop.clone()));
    }
    ready(addresses);
    health.started();
    let (pages, pages_url) = (addresses.pages, &app.pages_url);
    tracing::info!(event = "gateway.listening", %address, %pages, %pages_url, %gateway_id, "the gateway is listening");

    let api = (router(&app, forwarder), app.metrics.listener(Listener::Api));
    let pages = (pages_router(&app), app.metrics.listener(Listener::Pages));
    let mut led = app.ledger.led();
    let left = async {
        stop.cancelled().await;
        led.to_hand_over()
    };
    let (until, _, left) = tokio::join!(
        serve(listener, &app, api, config.limits, timeouts, (stop.clone(), stop.clone())),
        serve(pages_listener, &app, pages, config.limits, timeouts, (stop.clone(), stop.clone())),
        left,
    );
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
    if !left.is_empty() {
        // Other gateways send commands here until they know who leads: on a connection that is closed, the outcome of one
        // would not be known.
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, led.led_by_others(&left)).await;
        farewell.cancel();
        tokio::time::sleep(FAREWELL).await;
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

/// The token that is cancelled `drain` after `stop`. Meanwhile the gateway serves as before, and says that it is not
/// ready: load balancers take it out before its listener closes. A gateway that has not started stops at once.
fn after_drain(stop: CancellationToken, drain: Duration, health: &Health) -> CancellationToken {
    let (drained, health) = (CancellationToken::new(), health.clone());
    let ends = drained.clone();
    // Ends with the runtime, like the watch for signals.
    tokio::spawn(async move {
        stop.cancelled().await;
        if health.stopping() == WasServing::Yes && !drain.is_zero() {
            tracing::info!(
                event = "gateway.draining",
                seconds = drain.as_secs(),
                "the gateway is not ready and will stop"
            );
            tokio::time::sleep(drain).await;
        }
        ends.cancel();
    });
    drained
}

/// Adds the checks of whether a gateway can serve.
fn add_checks(health: &Health, reads: &ReadPool, led: &LedPartitions) {
    let (reads, led) = (reads.clone(), led.clone());
    health.add_costly_check("postgres", move || {
        let reads = reads.clone();
        Box::pin(async move { probe::answers(&reads).await })
    });
    health.add_check("leases", move || Box::pin(std::future::ready(led.check())));
}

/// The connections of the payment processor. There is none for real money yet: the test processor, which takes public card
/// numbers, exists in test mode alone.
fn paying_pool(mode: Mode, database_url: &str, connections: usize) -> Result<Option<Pool>, Error> {
    Ok(match mode {
        Mode::Live => None,
        Mode::Test => Some(pool(database_url, connections)?),
    })
}

fn router(app: &Arc<App>, forwarder: Arc<Forwarder>) -> Router {
    docs::check();
    forward::served().with_state(forwarder).merge(standard(app))
}

/// The REST interface.
fn standard(app: &Arc<App>) -> Router {
    let standard = Router::from(rest::routes().merge(docs::document_route()))
        .method_not_allowed_fallback(rest::method_not_allowed)
        .fallback(rest::route_not_found);
    with_conventions(app, Router::new().nest("/v1", standard))
}

/// The hosted pages and the API reference.
fn pages_router(app: &Arc<App>) -> Router {
    with_conventions(app, docs::routes().merge(checkout::routes()))
}

fn with_conventions(app: &Arc<App>, routes: Router<Arc<App>>) -> Router {
    routes
        .method_not_allowed_fallback(rest::method_not_allowed)
        .fallback(rest::route_not_found)
        .layer(from_fn_with_state(Arc::clone(app), rest::keep_conventions))
        .with_state(Arc::clone(app))
}

/// Refuses to forward a provider's headers unaltered if browsers could take them for the pages' host.
fn may_forward_headers(config: &Config) -> Result<(), Error> {
    let Pages { listen, url } = &config.pages;
    let api = config.listen.to_string();
    let apart = listen.is_some() && url.as_ref().is_some_and(|url| !url.is_at(&api));
    match config.response_headers {
        ResponseHeaders::Unaltered if !apart => Err(Error::PagesNotApart),
        ResponseHeaders::Unaltered | ResponseHeaders::Confined => Ok(()),
    }
}

/// The URL of the pages. On a live instance it is never guessed: customers follow it to pay.
fn pages_url(given: Option<PagesUrl>, mode: Mode, socket: &TcpSocket) -> Result<PagesUrl, Error> {
    let guessed = || match mode {
        Mode::Test => PagesUrl::of(socket.local_addr().ok()?),
        Mode::Live => None,
    };
    given.or_else(guessed).ok_or(Error::NoPagesUrl)
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
        Some(url) => Ok((listener, url.to_string())),
        None if address.ip().is_unspecified() => Err(Error::NoUrl(address)),
        None => Ok((listener, format!("http://{address}"))),
    }
}

/// Serves the other gateways until `stop`; after `farewell`, on connections that they have. What they ask at the end is
/// answered within [`UNSETTLED_LOG_TIMEOUT`].
async fn serve_gateways(
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    (farewell, stop): (CancellationToken, CancellationToken),
) {
    let limits = ServerLimits {
        connections: GATEWAY_CONNECTIONS,
        connections_per_address: None,
        calls: GATEWAY_CONNECTIONS,
        calls_per_merchant: None,
        call_rate_per_merchant: None,
        strangers: Some(STRANGERS),
    };
    let timeouts = Timeouts { head: GATEWAY_HEAD_TIMEOUT, grace: UNSETTLED_LOG_TIMEOUT, ..app.timeouts };
    let served = (router, app.metrics.listener(Listener::Gateways));
    serve(listener, &app, served, limits, timeouts, (farewell, stop)).await;
}
