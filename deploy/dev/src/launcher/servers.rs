//! The database and message servers of an instance: child processes, or servers that somebody else runs.

use anyhow::Result;

use super::account::Account;
use super::data_folder::DataFolder;
use super::ports::Ports;
use super::processes::Processes;
use super::{Config, NATS_SERVERS, Servers, citus, nats, postgres};

/// The URLs of the database.
pub(super) struct Database {
    /// Over TCP, as tools reach it.
    pub(super) url: String,
    /// As processes of this machine reach it fastest.
    pub(super) local_url: String,
}

/// Starts Postgres and creates the database, unless one was given.
pub(super) async fn database(
    config: &Config,
    folder: &DataFolder,
    ports: &mut Ports,
    processes: &mut Processes,
) -> Result<Database> {
    if let Some(url) = &config.given.database_url {
        return Ok(Database { url: url.clone(), local_url: url.clone() });
    }
    let account = Account::find(folder)?;
    let kind = match config.servers {
        Servers::Single => postgres::Kind::Plain,
        Servers::Cluster => postgres::Kind::Citus,
    };
    let cluster = postgres::Cluster::open(folder, &account, ports, "postgres", kind).await?;
    processes.start_postgres(cluster.spec());
    let url = cluster.wait_until_ready(processes.postgres()?).await?;
    if config.servers == Servers::Cluster {
        citus::start_workers(folder, &account, ports, &url, &cluster, processes).await?;
    }
    let local_url = cluster.local_url(&url);
    Ok(Database { url, local_url })
}

/// Starts the NATS servers, unless some were given. Returns their URLs, with commas between them.
pub(super) async fn nats(
    config: &Config,
    folder: &DataFolder,
    ports: &mut Ports,
    processes: &mut Processes,
) -> Result<String> {
    if let Some(urls) = &config.given.nats_url {
        return Ok(urls.clone());
    }
    let layout = match config.servers {
        Servers::Single => nats::Layout::Single,
        Servers::Cluster => nats::Layout::Cluster(NATS_SERVERS),
    };
    let servers = nats::Server::open_all(folder, ports, layout)?;
    for server in &servers {
        processes.start_nats(server.spec());
    }
    let mut urls = Vec::new();
    for (server, process) in servers.iter().zip(processes.nats()) {
        urls.push(server.wait_until_ready(process).await?);
    }
    Ok(urls.join(","))
}
