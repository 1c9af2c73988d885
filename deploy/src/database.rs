//! Command-line flags for the ledger's database and NATS, and the instance row (`ledger.instance`): mode and server key.

use anyhow::{Context as _, Result, bail};
use farthing_core::partition::Partitions;
use farthing_core::secret::{Mode, ServerKey};
use farthing_log::connect::{Role, connect};
use farthing_log::partitions;

const INSTANCE: &str = "SELECT mode, server_key FROM ledger.instance";

/// Flags that name the database.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Database {
    /// Postgres database of the ledger: postgres://USER:PASSWORD@HOST:PORT/NAME.
    #[arg(long, env = "FARTHING_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database_url: String,
}

/// Flags that replace the server key kept in the database.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KeyOverride {
    /// Server key, 64 hexadecimal digits [default: the key kept in the database].
    #[arg(long, env = "FARTHING_SERVER_KEY", hide_env_values = true, value_name = "HEX", value_parser = server_key)]
    pub(crate) server_key: Option<ServerKey>,
}

/// Flags that name the message server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Nats {
    /// NATS servers: nats://HOST:PORT, with commas between those of a cluster. Without it, readers poll the database and no events are published.
    #[arg(long, env = "FARTHING_NATS_URL", value_name = "URL")]
    pub(crate) nats_url: Option<String>,
}

/// The instance, as the first `farthing migrate` recorded it.
pub(crate) struct Instance {
    /// Decides the prefix of secret keys.
    pub(crate) mode: Mode,
    /// Hashes keys and derives secrets.
    pub(crate) server_key: ServerKey,
    /// The partitions of the log.
    pub(crate) partitions: Partitions,
}

fn server_key(text: &str) -> Result<ServerKey, String> {
    ServerKey::from_hex(text).ok_or_else(|| "must be 64 hexadecimal digits".to_owned())
}

/// Reads the instance. The server key in `key`, if any, takes precedence over the one in the database.
pub(crate) async fn instance(database: &Database, key: &KeyOverride) -> Result<Instance> {
    let client =
        connect(&database.database_url, Role::Gateway).await.context("cannot connect to the database")?;
    let row = client.query_opt(INSTANCE, &[]).await.context("cannot read the instance from the database")?;
    let row = row.context("the database has no ledger yet: run `farthing migrate` first")?;
    let mode = match row.get::<_, &str>(0) {
        "live" => Mode::Live,
        "test" => Mode::Test,
        other => bail!("the ledger has the mode {other:?}, which this version of farthing does not know"),
    };
    let server_key = match &key.server_key {
        Some(key) => key.clone(),
        None => ServerKey::from_hex(row.get(1)).context("the server key in the database is malformed")?,
    };
    let partitions = partitions::load(&client).await.context("cannot read the partitions of the log")?;
    let partitions = partitions.context("the ledger has no partitions: run `farthing migrate` first")?;
    Ok(Instance { mode, server_key, partitions })
}
