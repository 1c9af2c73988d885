//! One gateway process: everything put together, started, and stopped in good order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use chrono::Utc;
use farthing_ledger::command::RequestSettings;
use farthing_ledger::ids::{GatewayId, Mint};
use farthing_ledger::log::appender::{self, Appender};
use farthing_ledger::log::connect::{self, Role};
use farthing_ledger::secret::ServerKey;
use ipnet::IpNet;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::forward::{AddressGuard, Forwarder, ProviderHost, forward};
use crate::rest;
use crate::rest::rate_limit::RateLimits;
use crate::serve::serve;
use crate::sweep::{Sweeper, beat, give_back};

/// Connections for reads.
const READ_CONNECTIONS: usize = 8;

/// How long one read may take in the database, in milliseconds.
const READ_TIMEOUT_MS: u32 = 5_000;

/// How long calls in flight are waited for at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

const INSTANCE: &str = "SELECT server_key FROM ledger.instance";

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
    /// Hosts that speak a built-in provider's dialect.
    pub provider_hosts: Vec<ProviderHost>,
    /// What decides about admission.
    pub settings: RequestSettings,
    /// After this time without a sign of life a gateway's open requests are ended.
    pub sweep_after: Duration,
}

/// Why a gateway does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// Postgres.
    #[error("Postgres: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// The pool of connections.
    #[error("the pool of connections: {0}")]
    Pool(#[from] deadpool_postgres::BuildError),
    /// The database is not a migrated one.
    #[error("the database says nothing of the instance; run `farthing migrate`")]
    NotMigrated,
    /// TLS towards providers.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Runs a gateway until `stop`; `ready` is told the address once it listens.
pub async fn run(
    config: Config,
    stop: CancellationToken,
    ready: impl FnOnce(SocketAddr) + Send,
) -> Result<(), Error> {
    let server_key = server_key(&config).await?;
    let mint = Mint::default();
    let gateway_id = GatewayId::new(mint.next(Utc::now()));
    let tasks = TaskTracker::new();
    // The appender outlives the calls that need it.
    let abort = CancellationToken::new();
    let ledger = Appender::start(
        appender::Config {
            database_url: config.database_url.clone(),
            role: Role::Gateway,
            writer: gateway_id.to_string(),
            nats_url: config.nats_url.clone(),
        },
        abort.clone(),
        &tasks,
    );
    let mut reading = connect::config(&config.database_url, Role::Gateway)?;
    // A read that nobody waits for any more does not keep its connection busy.
    let options = reading.get_options().unwrap_or_default().to_owned();
    reading.options(format!("{options} -c statement_timeout={READ_TIMEOUT_MS}"));
    let manager = deadpool_postgres::Manager::new(reading, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(READ_CONNECTIONS).build()?;
    let settings = config.settings;
    let limits = RateLimits::default();
    let app = Arc::new(App { ledger, reads: pool, server_key, mint, gateway_id, settings, limits });

    let calls = TaskTracker::new();
    let guard = AddressGuard::new(config.allow_addresses);
    let forwarder = Arc::new(Forwarder::new(
        Arc::clone(&app),
        guard,
        config.provider_hosts,
        tls()?,
        calls.clone(),
        abort.clone(),
    ));
    let listener =
        TcpListener::bind(config.listen).await.map_err(|error| Error::Listen(config.listen, error))?;
    let address = listener.local_addr().map_err(|error| Error::Listen(config.listen, error))?;
    let database_url = config.database_url;
    tasks.spawn(beat(Arc::clone(&app), database_url.clone(), config.sweep_after, abort.clone()));
    tasks.spawn(Sweeper::new(Arc::clone(&app), database_url, config.sweep_after).run(stop.clone()));
    ready(address);
    tracing::info!(%address, %gateway_id, "the gateway listens");

    serve(listener, router(&app, forwarder), stop.clone(), DRAIN_TIMEOUT).await;
    calls.close();
    if tokio::time::timeout(DRAIN_TIMEOUT, calls.wait()).await.is_err() {
        tracing::warn!("calls are left open, to be swept by another gateway");
    } else {
        give_back(&app).await;
    }
    abort.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

fn router(app: &Arc<App>, forwarder: Arc<Forwarder>) -> Router {
    let standard = Router::new()
        .nest("/v1", rest::routes())
        .fallback(rest::route_not_found)
        .layer(from_fn_with_state(Arc::clone(app), rest::keep_conventions))
        .with_state(Arc::clone(app));
    Router::new()
        .route("/v1/forward", any(forward))
        .route("/v1/forward/", any(forward))
        .with_state(forwarder)
        .merge(standard)
}

async fn server_key(config: &Config) -> Result<ServerKey, Error> {
    let client = connect::connect(&config.database_url, Role::Gateway).await?;
    let row = client.query_opt(INSTANCE, &[]).await?.ok_or(Error::NotMigrated)?;
    config.server_key.clone().or_else(|| ServerKey::from_hex(row.get(0))).ok_or(Error::NotMigrated)
}

/// TLS towards providers, under the certificates that this machine trusts.
fn tls() -> Result<rustls::ClientConfig, Error> {
    use hyper_rustls::ConfigBuilderExt as _;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = || {
        rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
    };
    match builder()?.with_native_roots() {
        Ok(config) => Ok(config.with_no_client_auth()),
        Err(error) => {
            tracing::warn!(%error, "no trusted certificates: calls to https providers will fail");
            Ok(builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
        }
    }
}
