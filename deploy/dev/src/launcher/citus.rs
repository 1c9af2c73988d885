//! The workers of a private Citus cluster, and what the nodes must know of each other.

use anyhow::{Context as _, Result};
use farthing_log::connect::{Role, connect};
use tokio_postgres::Client;

use super::account::Account;
use super::data_folder::DataFolder;
use super::ports::Ports;
use super::postgres::{Cluster, Kind};
use super::processes::Processes;

const WORKERS: usize = 2;
const HOST: &str = "127.0.0.1";

const CREATE_EXTENSION: &str = "CREATE EXTENSION IF NOT EXISTS citus";

const SET_COORDINATOR: &str = "SELECT citus_set_coordinator_host($1, $2)";

/// The workers in the order in which they were added.
const NODES: &str = "SELECT nodeid, nodeport FROM pg_dist_node WHERE groupid <> 0 ORDER BY nodeid";

const ADD_NODE: &str = "SELECT citus_add_node($1, $2)";

const MOVE_NODE: &str = "SELECT citus_update_node($1, $2, $3)";

/// The nodes connect to each other under the roles of their sessions. A role keeps its password in a migration.
const CREATE_ROLES: &str = "\
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['farthing_gateway', 'farthing_projector'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L', name, '{password}');
        END IF;
    END LOOP;
END $$";

/// Starts the workers and makes `coordinator`, whose database is at `database_url`, know them.
pub(super) async fn start_workers(
    folder: &DataFolder,
    account: &Account,
    ports: &mut Ports,
    database_url: &str,
    coordinator: &Cluster,
    processes: &mut Processes,
) -> Result<()> {
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let worker =
            Cluster::open(folder, account, ports, &format!("postgres-worker-{number}"), Kind::Citus).await?;
        processes.start_worker(worker.spec());
        workers.push(worker);
    }
    for (worker, process) in workers.iter().zip(processes.workers()) {
        let url = worker.wait_until_ready(process).await?;
        create_extension(&url).await?;
    }
    let client = create_extension(database_url).await?;
    introduce(&client, coordinator, &workers).await.context("cannot set up the Citus cluster")
}

/// Creates the extension in a node's database.
async fn create_extension(url: &str) -> Result<Client> {
    let client = connect(url, Role::Owner).await.context("cannot connect to a node of the Citus cluster")?;
    client
        .batch_execute(CREATE_EXTENSION)
        .await
        .context("cannot create the extension citus: it must be installed for this version of Postgres")?;
    Ok(client)
}

async fn introduce(
    client: &Client,
    coordinator: &Cluster,
    workers: &[Cluster],
) -> Result<(), tokio_postgres::Error> {
    client.execute(SET_COORDINATOR, &[&HOST, &i32::from(coordinator.port())]).await?;
    let known = client.query(NODES, &[]).await?;
    for (number, worker) in workers.iter().enumerate() {
        let port = i32::from(worker.port());
        match known.get(number) {
            None => drop(client.execute(ADD_NODE, &[&HOST, &port]).await?),
            Some(row) if row.try_get::<_, i32>(1)? != port => {
                client.execute(MOVE_NODE, &[&row.try_get::<_, i32>(0)?, &HOST, &port]).await?;
            }
            Some(_) => {}
        }
    }
    client.batch_execute(&CREATE_ROLES.replace("{password}", coordinator.password())).await
}
