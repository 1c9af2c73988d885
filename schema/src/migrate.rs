//! Brings a database to this program's schema. Invariant: one migration at a time, by an advisory lock held throughout.

use tokio_postgres::Client;
use tokio_postgres::error::{DbError, SqlState};

use crate::citus;
use crate::read_model::ReadModel;

/// The oldest Postgres that Farthing works with, as `server_version_num`.
pub const OLDEST_POSTGRES: i32 = 150_000;

/// The version of the server, as a number and as a text.
const VERSION: &str =
    "SELECT current_setting('server_version_num')::integer, current_setting('server_version')";

/// The advisory lock of a migration. It waits rather than polls, unlike `farthing_log::leadership`: migrations are
/// rare, and this crate does without the log's dependencies.
const LOCK: &str = "SELECT pg_advisory_lock(hashtextextended('farthing.migrate', 0))";
const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended('farthing.migrate', 0))";

/// Looks names up among Postgres's own alone.
const SAFE_PATH: &str = "SET search_path = pg_catalog, pg_temp";
/// The schema of the table in which refinery keeps the applied migrations, which it names without a schema. One that
/// another role has put in the way does not count: the current user owns it or, in `public`, a role that it is a member
/// of. `pg_has_role` does not say that: to it a superuser is a member of every role.
const FIND_HISTORY: &str = "\
WITH RECURSIVE mine (id) AS (
    SELECT oid FROM pg_roles WHERE rolname = current_user
    UNION SELECT m.roleid FROM pg_auth_members AS m JOIN mine ON mine.id = m.member
)
SELECT quote_ident(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_roles AS owner ON owner.oid = c.relowner
WHERE c.relname = 'refinery_schema_history' AND c.relkind = 'r' AND owner.oid IN (SELECT id FROM mine)
    AND (n.nspname = 'public' OR owner.rolname = current_user)
ORDER BY n.nspname = 'public' DESC, n.nspname LIMIT 1";
/// Where it is created, if there is none.
const HISTORY_SCHEMA: &str = "public";

const INSERT_INSTANCE: &str =
    "INSERT INTO ledger.instance (mode, server_key) VALUES ($1, $2) ON CONFLICT (only_row) DO NOTHING";
const SELECT_INSTANCE_MODE: &str = "SELECT mode FROM ledger.instance";
const INSTANCE_TABLE_EXISTS: &str = "SELECT to_regclass('ledger.instance') IS NOT NULL";
const COUNT_PARTITIONS: &str = "SELECT count(*)::integer FROM ledger.heads";
const INSERT_HEADS: &str = "INSERT INTO ledger.heads (partition, shape, generation) SELECT n::smallint, $2, $3 FROM generate_series(0, $1::integer - 1) AS n";
const INSERT_CHECKPOINTS: &str = "INSERT INTO ledger.checkpoints (partition, generation) SELECT n::smallint, $2 FROM generate_series(0, $1::integer - 1) AS n";
const INSERT_LEASES: &str =
    "INSERT INTO ledger.leases (partition) SELECT n::smallint FROM generate_series(0, $1::integer - 1) AS n";
const FIND_GENERATION: &str = "SELECT schema_name FROM ledger.read_models WHERE name = $1 AND version = $2";
const SCHEMA_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";

const INSERT_GENERATION: &str = "\
INSERT INTO ledger.read_models (name, version, schema_name, number, built)
SELECT $1, $2, $3, coalesce(max(number), 0) + 1, $4 FROM ledger.read_models WHERE name = $1";
/// Makes a generation the newest, unless it is, or a projector works on it. It is built if $3.
const BRING_BACK: &str = "\
UPDATE ledger.read_models AS r SET number = newest.number + 1, built = $3
FROM (SELECT max(number) AS number FROM ledger.read_models WHERE name = $1) AS newest
WHERE r.name = $1 AND r.version = $2 AND r.number < newest.number
    AND pg_try_advisory_xact_lock(hashtextextended('farthing.projection.' || r.schema_name, 0))";
const COUNT_WRITTEN: &str = "SELECT count(*) FROM ledger.heads WHERE position > 0";

/// How often migrations are applied in vain while other databases of the server are migrated.
const ATTEMPTS: u32 = 20;

/// What Postgres answers if two transactions create the same role, or grant it to the same login, at once. The last one
/// is its internal error, with the text "tuple concurrently updated". A duplicate in a table of ours is not such a change.
fn is_of_roles(error: &DbError) -> bool {
    match *error.code() {
        SqlState::UNIQUE_VIOLATION => error.constraint().is_some_and(|name| name.starts_with("pg_auth")),
        SqlState::DUPLICATE_OBJECT => true,
        SqlState::INTERNAL_ERROR => error.message() == "tuple concurrently updated",
        _ => false,
    }
}

/// The number of partitions of a new log, unless one is chosen.
const DEFAULT_PARTITIONS: i16 = 8;

pub(crate) mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The settings of a new database. An existing one keeps its own.
#[derive(Clone, Copy)]
pub struct Migrate<'a> {
    /// `live` or `test`: whether the instance moves real money. A database without an instance refuses `None`.
    pub mode: Option<&'a str>,
    /// The instance's server key, as 64 hexadecimal digits. Ignored if the database has one.
    pub server_key_hex: &'a str,
    /// The number of partitions of the log, from 1 to 1,024; `None` for 8. An existing log refuses another one than it
    /// has.
    pub partitions: Option<i16>,
    /// The shape of the states that this program writes to a new log.
    pub shape: i16,
    /// Their generation.
    pub generation: i16,
    /// Whether the tables become distributed by partition over the nodes of a Citus cluster. Tables that are, stay so.
    pub citus: bool,
}

/// The result of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The migrations applied now, as `V1__log`.
    pub applied: Vec<String>,
    /// The read models of which a generation was created now, or came back from an earlier release. Projectors of this
    /// release build those that are not the first.
    pub created: Vec<&'static str>,
    /// The mode of the instance, set by its first migration.
    pub mode: String,
    /// The number of partitions of the log, set by its first migration.
    pub partitions: i32,
    /// Whether the tables are distributed over the nodes of a Citus cluster.
    pub distributed: bool,
}

/// Why a database cannot be migrated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer, or refuses.
    #[error("the database refuses: {}", detail(.0))]
    Database(#[from] tokio_postgres::Error),
    /// The server is older than [`OLDEST_POSTGRES`].
    #[error("the server is Postgres {0}, and Farthing needs Postgres 15 or newer: upgrade the server")]
    Version(String),
    /// A migration fails, or one that was applied has changed since.
    #[error("migration: {0}")]
    Migration(#[from] refinery::Error),
    /// There is no instance yet, and nothing says which mode it is to have.
    #[error("this database has no instance yet: its first migration needs a mode, live or test (--mode)")]
    Mode,
    /// The key is not 64 hexadecimal digits.
    #[error("the server key must be 64 hexadecimal digits")]
    ServerKey,
    /// The log has another number of partitions.
    #[error("the log has {found} partitions, not {wanted}: their number cannot be changed")]
    Partitions {
        /// The number that was asked for.
        wanted: i16,
        /// The number that the log has.
        found: i32,
    },
    /// The tables cannot be distributed.
    #[error(transparent)]
    Citus(#[from] citus::Error),
}

fn detail(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Applies the missing migrations, and creates the instance's row and an empty generation of each read model of which
/// there is none of this program's version. Processes of the release before may run meanwhile. `client` is a session of
/// the database's owner, which is closed afterwards, and the lock with it.
pub async fn migrate(mut client: Client, options: Migrate<'_>) -> Result<Report, Error> {
    let key = options.server_key_hex;
    if key.len() != 64 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Error::ServerKey);
    }
    let version = client.query_one(VERSION, &[]).await?;
    if version.try_get::<_, i32>(0)? < OLDEST_POSTGRES {
        return Err(Error::Version(version.try_get(1)?));
    }
    client.batch_execute(SAFE_PATH).await?;
    client.execute(LOCK, &[]).await?;
    if options.mode.is_none() && !has_instance(&client).await? {
        return Err(Error::Mode);
    }
    let report = apply(&mut client, options).await?;
    client.execute(UNLOCK, &[]).await?;
    Ok(report)
}

async fn has_instance(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let has_table: bool = client.query_one(INSTANCE_TABLE_EXISTS, &[]).await?.try_get(0)?;
    Ok(has_table && client.query_opt(SELECT_INSTANCE_MODE, &[]).await?.is_some())
}

async fn apply(client: &mut Client, options: Migrate<'_>) -> Result<Report, Error> {
    let found = client.query_opt(FIND_HISTORY, &[]).await?;
    let schema: String =
        found.map(|row| row.try_get(0)).transpose()?.unwrap_or_else(|| HISTORY_SCHEMA.to_owned());
    client.batch_execute(&format!("SET search_path = {schema}")).await?;
    let applied = apply_missing(client).await?;
    client.batch_execute(SAFE_PATH).await?;
    let distributed = options.citus || citus::is_distributed(client).await?;
    if distributed {
        let found: i32 = client.query_one(COUNT_PARTITIONS, &[]).await?.try_get(0)?;
        citus::distribute_log(client, if found == 0 { chosen(options) } else { found }).await?;
    }
    if let Some(mode) = options.mode {
        client.execute(INSERT_INSTANCE, &[&mode, &options.server_key_hex]).await?;
    }
    let mode = client.query_one(SELECT_INSTANCE_MODE, &[]).await?.try_get(0)?;
    let partitions = create_partitions(client, options).await?;
    let mut created = Vec::new();
    for model in ReadModel::ALL {
        if create_generation(client, model).await? {
            created.push(model.name());
        }
    }
    Ok(Report { applied, created, mode, partitions, distributed })
}

/// Applies the missing migrations and returns their names. The lock is one of this database, but roles belong to the
/// server: if a migration of another database creates them at the same moment, a migration fails, has no effect and is
/// applied again.
async fn apply_missing(client: &mut Client) -> Result<Vec<String>, refinery::Error> {
    let mut applied = Vec::new();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let result = embedded::migrations::runner().run_async(client).await;
        let report = match &result {
            Ok(report) => Some(report),
            Err(error) => error.report(),
        };
        let done = report.into_iter().flat_map(refinery::Report::applied_migrations);
        applied.extend(done.map(ToString::to_string));
        match result {
            Err(error) if attempt < ATTEMPTS && is_concurrent_change(&error) => {}
            result => return result.map(|_| applied),
        }
    }
}

/// Whether the migration of another database changed the same rows of the server's catalogue.
fn is_concurrent_change(error: &refinery::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(reported) =
            cause.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::as_db_error)
        {
            return is_of_roles(reported);
        }
        source = cause.source();
    }
    false
}

/// The number of partitions of a new log.
fn chosen(options: Migrate<'_>) -> i32 {
    i32::from(options.partitions.unwrap_or(DEFAULT_PARTITIONS))
}

/// Creates the partitions of a new log, or checks their number. Returns it.
async fn create_partitions(client: &mut Client, options: Migrate<'_>) -> Result<i32, Error> {
    let found: i32 = client.query_one(COUNT_PARTITIONS, &[]).await?.try_get(0)?;
    if found == 0 {
        let partitions = chosen(options);
        let transaction = client.transaction().await?;
        let shape = i64::from(options.shape);
        transaction.execute(INSERT_HEADS, &[&partitions, &shape, &options.generation]).await?;
        transaction.execute(INSERT_CHECKPOINTS, &[&partitions, &options.generation]).await?;
        transaction.execute(INSERT_LEASES, &[&partitions]).await?;
        transaction.commit().await?;
        return Ok(partitions);
    }
    match options.partitions {
        Some(wanted) if i32::from(wanted) != found => Err(Error::Partitions { wanted, found }),
        Some(_) | None => Ok(found),
    }
}

/// Creates an empty generation of a read model in a schema of its own, owned by the projector, unless there is one of
/// this program's version. One that a later release had replaced, and that nobody has kept since, counts as new: it is
/// far behind. Returns whether there is a new one.
async fn create_generation(client: &mut Client, model: ReadModel) -> Result<bool, Error> {
    // On a cluster, a transaction that has read over several connections creates no tables.
    let written: i64 = client.query_one(COUNT_WRITTEN, &[]).await?.try_get(0)?;
    let transaction = client.transaction().await?;
    let (name, version) = (model.name(), model.version());
    let found = transaction.query_opt(FIND_GENERATION, &[&name, &version]).await?;
    let exists = found.is_some();
    let schema: String = if let Some(found) = found {
        found.try_get(0)?
    } else {
        let is_taken: bool = transaction.query_one(SCHEMA_EXISTS, &[&name]).await?.try_get(0)?;
        if is_taken { model.schema_of_version() } else { name.to_owned() }
    };
    // The nodes of a cluster see what one role has created in a transaction only under that role.
    transaction.batch_execute("SET LOCAL ROLE farthing_projector").await?;
    if !exists {
        transaction.batch_execute(&model.ddl(&schema, 1)).await?;
    }
    citus::distribute_schema(&transaction, &schema).await?;
    transaction.batch_execute("RESET ROLE").await?;
    // A generation of a log without events is built.
    let built = written == 0;
    let is_new = if exists {
        transaction.execute(BRING_BACK, &[&name, &version, &built]).await? > 0
    } else {
        transaction.execute(INSERT_GENERATION, &[&name, &version, &schema, &built]).await?;
        true
    };
    transaction.commit().await?;
    Ok(is_new)
}
