//! The launcher: runs a private instance as child processes of this one, under one data folder: Postgres, NATS, gateways, projectors, the mock provider and, created on the first start, a demo merchant. Invariant:
//! it touches nothing outside the data folder, and no child outlives this process.

mod account;
mod citus;
mod data_folder;
mod demo;
mod examples;
mod gateway_address;
mod nats;
mod operator;
mod ports;
mod postgres;
mod private_file;
mod process;
mod processes;
mod ready_file;
mod rest_client;
mod roles;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use farthing_core::secret::ServerKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::account::Account;
use self::data_folder::DataFolder;
use self::operator::Operator;
use self::ports::Ports;
use self::processes::Processes;
use self::ready_file::Ready;
use self::roles::Roles;

/// The NATS servers of a cluster. All of them store the feed.
const NATS_SERVERS: u8 = 3;

/// The processes to run, their settings and the data folder.
pub struct Config {
    /// The `farthing` program. Its subcommands are the child processes.
    pub program: PathBuf,
    /// The data folder. Created if it does not exist.
    pub data: PathBuf,
    /// The address of the first gateway. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// The number of gateways.
    pub gateways: u16,
    /// The number of projectors.
    pub projectors: u16,
    /// The database and message servers.
    pub servers: Servers,
    /// Gateways end the open requests of a gateway without a heartbeat for this long.
    pub sweep_after_seconds: u64,
    /// The time for open calls to end at shutdown, in seconds.
    pub grace_seconds: u64,
    /// Whether the mock provider keeps a journal.
    pub mock_journal: MockJournal,
    /// The server key that replaces the one kept in the database.
    pub server_key: Option<ServerKey>,
    /// Further command-line arguments of every gateway.
    pub gateway_arguments: Vec<String>,
    /// Environment variables of every gateway, for settings that are secret.
    pub gateway_environment: Vec<(String, String)>,
    /// The file to describe the running instance in.
    pub ready_file: Option<PathBuf>,
}

/// The database and message servers of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Servers {
    /// A Postgres and a NATS server.
    Single,
    /// A Citus coordinator with two workers, and a cluster of three NATS servers.
    Cluster,
}

/// Whether the mock provider keeps a journal in the data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MockJournal {
    /// It writes `mock-journal.ndjson`.
    Write,
    /// It keeps none, for benchmarks.
    Off,
}

/// Starts the instance, keeps it running until `stop` is cancelled, then stops every child.
pub async fn run(config: Config, stop: CancellationToken) -> Result<()> {
    let folder = DataFolder::open(&config.data)?;
    if let Some(path) = &config.ready_file {
        // The file of an earlier run names processes that are gone.
        let _ = std::fs::remove_file(path);
    }
    let (starts, started) = watch::channel(());
    let mut processes = Processes::new(starts);
    let result = tokio::select! {
        result = run_instance(&config, &folder, &mut processes, started) => result,
        () = stop.cancelled() => Ok(()),
    };
    processes.stop().await;
    if let Some(path) = &config.ready_file {
        let _ = std::fs::remove_file(path);
    }
    result
}

/// Starts everything, announces it, then keeps the ready file up to date. Returns only on an error.
async fn run_instance(
    config: &Config,
    folder: &DataFolder,
    processes: &mut Processes,
    mut started: watch::Receiver<()>,
) -> Result<()> {
    let mut ports = Ports::remembered(folder);
    let account = Account::find(folder)?;
    let (kind, layout) = match config.servers {
        Servers::Single => (postgres::Kind::Plain, nats::Layout::Single),
        Servers::Cluster => (postgres::Kind::Citus, nats::Layout::Cluster(NATS_SERVERS)),
    };
    let cluster = postgres::Cluster::open(folder, &account, &mut ports, "postgres", kind).await?;
    processes.start_postgres(cluster.spec());
    let database_url = cluster.wait_until_ready(processes.postgres()?).await?;
    if config.servers == Servers::Cluster {
        citus::start_workers(folder, &account, &mut ports, &database_url, &cluster, processes).await?;
    }
    let operator = Operator {
        program: &config.program,
        database_url: &database_url,
        server_key: config.server_key.as_ref(),
    };
    operator.migrate(config.servers).await?;

    let servers = nats::Server::open_all(folder, &mut ports, layout)?;
    for server in &servers {
        processes.start_nats(server.spec());
    }
    let mut nats_urls = Vec::new();
    for (server, process) in servers.iter().zip(processes.nats()) {
        nats_urls.push(server.wait_until_ready(process).await?);
    }
    let nats_url = nats_urls.join(",");

    let local_url = cluster.local_url(&database_url);
    let roles = Roles { config, folder, database_url: &local_url, nats_url: &nats_url };
    let local = IpAddr::from([127, 0, 0, 1]);
    let provider = SocketAddr::new(local, ports.take("provider", local)?);
    let openai = SocketAddr::new(local, ports.take("openai", local)?);
    processes.start_provider(roles.mock_provider(provider, openai));
    let mut listens = Vec::new();
    for index in 0..config.gateways {
        let ip = config.listen.ip();
        let listen = match (index, config.listen.port()) {
            (0, 1..) => config.listen,
            _ => SocketAddr::new(ip, ports.take(&format!("gateway-{index}"), ip)?),
        };
        listens.push(listen);
        processes.start_gateway(roles.gateway(index, listen, openai));
    }
    for index in 0..config.projectors {
        processes.start_projector(roles.projector(index));
    }
    ports.remember(folder)?;
    for process in processes.roles() {
        roles.wait_until_ready(process).await?;
    }

    let urls: Vec<_> = listens.iter().map(|listen| gateway_address::base_url(*listen)).collect();
    let gateway = gateway_address::reachable(*listens.first().unwrap_or(&config.listen));
    let demo = demo::find_or_create(folder, &operator, gateway).await?;
    let mut ready = Ready::new(urls, demo, provider, openai, database_url.clone(), nats_url.clone());
    examples::write(folder, &ready)?;
    let mut announced = false;
    loop {
        ready.pids = processes.pids();
        if let Some(path) = &config.ready_file {
            private_file::write_json(path, &ready)?;
        }
        if !announced {
            announce(&examples::announcement(folder, &ready))?;
            announced = true;
        }
        if started.changed().await.is_err() {
            return Ok(());
        }
    }
}

fn announce(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).context("cannot write to stdout")
}
