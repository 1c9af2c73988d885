//! The launcher: runs a private instance as child processes of this one, under one data folder: Postgres, NATS, gateways,
//! projectors, the mock provider and, created on the first start, a demo merchant. Invariant: it touches nothing outside
//! the data folder but the servers that it is given, and no child outlives this process.

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
mod process;
mod processes;
mod ready_file;
mod rest_client;
mod roles;
mod servers;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use farthing_core::secret::ServerKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::data_folder::DataFolder;
use self::gateway_address::Listens;
use self::operator::Operator;
use self::ports::Ports;
use self::processes::Processes;
use self::ready_file::{Nats, OperatorUrls, Ready};
use self::roles::{MockAddresses, Roles};
use crate::private_file;

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
    /// The address of the first gateway's hosted pages; `None` if it is the port after `listen`.
    pub pages_listen: Option<SocketAddr>,
    /// The URL of the hosted pages; `None` if it is the first gateway's address.
    pub pages_url: Option<String>,
    /// The number of gateways.
    pub gateways: u16,
    /// The number of projectors.
    pub projectors: u16,
    /// The database and message servers that are started.
    pub servers: Servers,
    /// Servers that are used instead.
    pub given: GivenServers,
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
    /// The format of the roles' logs, as a value of `--log-format`.
    pub log_format: &'static str,
    /// The file to describe the running instance in.
    pub ready_file: Option<PathBuf>,
}

/// Servers that somebody else runs. The launcher neither starts nor stops them.
#[derive(Debug, Clone, Default)]
pub struct GivenServers {
    /// An existing database, as its owner.
    pub database_url: Option<String>,
    /// NATS servers with JetStream, with commas between them.
    pub nats_url: Option<String>,
    /// What the names of all streams and subjects there begin with.
    pub nats_prefix: Option<String>,
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
    let database = servers::database(config, folder, &mut ports, processes).await?;
    let operator = Operator {
        program: &config.program,
        database_url: &database.url,
        server_key: config.server_key.as_ref(),
    };
    operator.migrate(config.servers).await?;

    let nats_url = servers::nats(config, folder, &mut ports, processes).await?;

    let roles = Roles { config, folder, database_url: &database.local_url, nats_url: &nats_url };
    let local = IpAddr::from([127, 0, 0, 1]);
    let mock = MockAddresses::take(&mut ports, local)?;
    processes.start_provider(roles.mock_provider(&mock));
    let listens = gateway_address::choose(config, &mut ports)?;
    let pages_url = pages_url(config, &listens);
    for (index, listen) in (0..).zip(&listens) {
        processes.start_gateway(roles.gateway(index, *listen, &pages_url, &mock));
    }
    let mut operators = OperatorUrls::of_gateways(&listens);
    for index in 0..config.projectors {
        let operator = SocketAddr::new(local, ports.take(&format!("operator-projector-{index}"), local)?);
        operators.add_projector(operator);
        processes.start_projector(roles.projector(index, operator));
    }
    ports.remember(folder)?;
    for process in processes.roles() {
        roles.wait_until_ready(process).await?;
    }

    let gateway = gateway_address::reachable(listens.first().map_or(config.listen, |first| first.api));
    let demo = demo::find_or_create(folder, &operator, gateway).await?;
    let nats = Nats { nats_url, nats_prefix: config.given.nats_prefix.clone().unwrap_or_default() };
    let mut ready = Ready::new((&listens, operators), pages_url, demo, &mock, database.url, nats);
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

/// The URL of the hosted pages, the same for all gateways.
fn pages_url(config: &Config, listens: &[Listens]) -> String {
    let first = listens.first().map_or(config.listen, |first| first.pages);
    config.pages_url.clone().unwrap_or_else(|| gateway_address::pages_url(first))
}

fn announce(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).context("cannot write to stdout")
}
