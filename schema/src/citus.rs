//! Distributes the tables over the nodes of a Citus cluster, by partition. All rows of a partition are on one node, so that
//! a transaction of one partition is a transaction of one node.
//!
//! The leases, the directory, the instance and what else is not of one partition stay on the coordinator. Plain Postgres
//! needs nothing of this.

use tokio_postgres::{Client, GenericClient};

/// The schemas of the log and of what is beside it. Read models have schemas of their own.
const LOG_SCHEMAS: [&str; 3] = ["ledger", "personal", "webhooks"];

/// The catalogue of the extension; there is none on plain Postgres.
const HAS_CATALOGUE: &str = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";

const IS_DISTRIBUTED: &str =
    "SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass('ledger.heads'))";

const IS_COORDINATOR: &str = "SELECT groupid = 0 FROM pg_dist_local_group";

const COUNT_NODES: &str = "\
SELECT count(*) FROM pg_dist_node WHERE noderole = 'primary' AND isactive AND shouldhaveshards";

/// The number of shards, of those from $1 to twice as many, that spreads $1 partitions over $2 nodes most evenly. Citus
/// places the shards on the nodes in turn.
const BEST_SHARD_COUNT: &str = "\
SELECT shards FROM (
    SELECT shards, count(*) AS partitions
    FROM generate_series($1::integer, 2 * $1::integer) AS shards, generate_series(0, $1::integer - 1) AS partition
    GROUP BY shards, (worker_hash(partition::smallint)::bigint + 2147483648) / (4294967296 / shards) % $2::bigint
) AS nodes GROUP BY shards ORDER BY max(partitions), shards LIMIT 1";

/// The tables of the schemas $1 with rows of a partition that are not distributed yet. A statement of one gateway renews
/// the leases of several partitions, and the directory is searched by key, whatever node is away: those two are not
/// distributed.
const MISSING: &str = "\
SELECT format('%I.%I', n.nspname, c.relname)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'partition' AND NOT a.attisdropped
WHERE c.relkind = 'r' AND n.nspname = ANY($1::text[])
    AND NOT EXISTS (SELECT FROM pg_dist_partition AS d WHERE d.logicalrelid = c.oid)
    AND c.oid <> 'ledger.leases'::regclass AND c.oid <> 'ledger.directory'::regclass
ORDER BY c.oid <> 'ledger.heads'::regclass, n.nspname, c.relname";

/// The log is append-only on every node: its triggers are copied to the shards. Tables and functions that one transaction
/// creates and distributes need the sequential mode.
const SETTINGS: &str = "\
SET LOCAL citus.enable_unsafe_triggers = on;
SET LOCAL citus.multi_shard_modify_mode = 'sequential';
SET LOCAL client_min_messages = warning";

/// The trigger that keeps record batches out of archived ranges would be copied to the shards, where it cannot read the
/// archives. A log on Citus is not archived.
const DROP_NOT_ARCHIVED: &str = "DROP TRIGGER IF EXISTS not_archived ON ledger.batches";

/// Citus connects to the other nodes under the role of the session.
const ALLOW_LOGIN: &str = "ALTER ROLE farthing_gateway LOGIN; ALTER ROLE farthing_projector LOGIN";

const CANNOT_LOGIN: &str = "\
SELECT EXISTS (
    SELECT FROM pg_roles WHERE rolname IN ('farthing_gateway', 'farthing_projector') AND NOT rolcanlogin)";

const DISTRIBUTE_HEADS: &str = "SELECT create_distributed_table('ledger.heads', 'partition', colocate_with => 'none', shard_count => $1)";

const DISTRIBUTE: &str =
    "SELECT create_distributed_table($1::text::regclass, 'partition', colocate_with => 'ledger.heads')";

/// The functions that run on the node of their partition. `ledger.lead` runs on the coordinator, where the leases are.
const FUNCTIONS: [&str; 4] =
    ["ledger.append", "ledger.append_batch", "ledger.resolve", "ledger.store_states"];

const DISTRIBUTE_FUNCTION: &str = "\
SELECT create_distributed_function(
    $1::text::regproc::oid::regprocedure, 'of_partition', colocate_with => 'ledger.heads')";

/// Why tables cannot be distributed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database does not answer, or refuses.
    #[error("the tables cannot be distributed: {}", .0.as_db_error().map_or_else(|| .0.to_string(), ToString::to_string))]
    Database(#[from] tokio_postgres::Error),
    /// The extension is missing.
    #[error(
        "the database has no Citus: run `CREATE EXTENSION citus` in it on every node, and add the nodes with \
         `citus_add_node`"
    )]
    NoExtension,
    /// The database is not the coordinator's.
    #[error("the database is a worker of the Citus cluster: give the URL of the coordinator")]
    NotCoordinator,
    /// There is no node for the tables.
    #[error("the Citus cluster has no node for the tables: add one with `citus_add_node`")]
    NoNodes,
}

/// Whether the log is distributed over the nodes of a Citus cluster. `false` on plain Postgres.
pub async fn is_distributed(client: &impl GenericClient) -> Result<bool, tokio_postgres::Error> {
    let has_catalogue: bool = client.query_one(HAS_CATALOGUE, &[]).await?.try_get(0)?;
    if !has_catalogue {
        return Ok(false);
    }
    client.query_one(IS_DISTRIBUTED, &[]).await?.try_get(0)
}

/// Creates the tables of `schema` by the statements `ddl`, in one transaction, and distributes them if the log is.
pub async fn create_schema(client: &mut Client, schema: &str, ddl: &str) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(ddl).await?;
    distribute_schema(&transaction, schema).await?;
    Ok(transaction.commit().await?)
}

/// Distributes the tables of `schema` in the caller's transaction, in which they were created. Does nothing if the log is
/// not distributed.
pub async fn distribute_schema(client: &impl GenericClient, schema: &str) -> Result<(), Error> {
    if is_distributed(client).await? {
        client.batch_execute(SETTINGS).await?;
        distribute_missing(client, &[schema]).await?;
    }
    Ok(())
}

/// Distributes the log of `partitions` partitions, with the rows that it has, and all that is beside it. Tables that are
/// distributed already stay as they are.
pub(crate) async fn distribute_log(client: &mut Client, partitions: i32) -> Result<(), Error> {
    let has_catalogue: bool = client.query_one(HAS_CATALOGUE, &[]).await?.try_get(0)?;
    if !has_catalogue {
        return Err(Error::NoExtension);
    }
    let is_coordinator: bool = client.query_one(IS_COORDINATOR, &[]).await?.try_get(0)?;
    if !is_coordinator {
        return Err(Error::NotCoordinator);
    }
    let nodes: i64 = client.query_one(COUNT_NODES, &[]).await?.try_get(0)?;
    if nodes == 0 {
        return Err(Error::NoNodes);
    }
    if client.query_one(CANNOT_LOGIN, &[]).await?.try_get(0)? {
        client.batch_execute(ALLOW_LOGIN).await?;
    }
    let transaction = client.transaction().await?;
    transaction.batch_execute(SETTINGS).await?;
    if !is_distributed(&transaction).await? {
        transaction.batch_execute(DROP_NOT_ARCHIVED).await?;
        let shards: i32 =
            transaction.query_one(BEST_SHARD_COUNT, &[&partitions, &nodes]).await?.try_get(0)?;
        transaction.execute(DISTRIBUTE_HEADS, &[&shards]).await?;
    }
    distribute_missing(&transaction, &LOG_SCHEMAS).await?;
    for function in FUNCTIONS {
        transaction.execute(DISTRIBUTE_FUNCTION, &[&function]).await?;
    }
    Ok(transaction.commit().await?)
}

/// Distributes the tables of `schemas` that are not, each with its rows.
async fn distribute_missing(client: &impl GenericClient, schemas: &[&str]) -> Result<(), Error> {
    for row in client.query(MISSING, &[&schemas]).await? {
        client.execute(DISTRIBUTE, &[&row.try_get::<_, String>(0)?]).await?;
    }
    Ok(())
}
