//! Where the ledger is, and what it says of itself: its mode and its server key (`ledger.instance`).

use farthing_core::secret::{Mode, ServerKey};
use farthing_log::connect::{Role, connect};

use crate::failure::{Failure, IntoFailure as _};

const INSTANCE: &str = "SELECT mode, server_key FROM ledger.instance";

/// Flags that name the database.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Database {
    /// The Postgres of the ledger: postgres://USER:PASSWORD@HOST:PORT/NAME.
    #[arg(long, env = "FARTHING_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub(crate) database_url: String,
}

/// A server key given from outside, instead of the one kept in the database.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KeyOverride {
    /// The server key, 64 hexadecimal digits; without it the one in the database is used.
    #[arg(long, env = "FARTHING_SERVER_KEY", hide_env_values = true, value_name = "HEX", value_parser = server_key)]
    pub(crate) server_key: Option<ServerKey>,
}

/// Flags that name the message server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Nats {
    /// The NATS server: nats://HOST:PORT. Without it readers poll, and nothing is published.
    #[arg(long, env = "FARTHING_NATS_URL", value_name = "URL")]
    pub(crate) nats_url: Option<String>,
}

/// What `farthing migrate` has set once.
pub(crate) struct Instance {
    /// Decides the prefix of secret keys.
    pub(crate) mode: Mode,
    /// Hashes keys and derives secrets.
    pub(crate) server_key: ServerKey,
}

fn server_key(text: &str) -> Result<ServerKey, String> {
    ServerKey::from_hex(text).ok_or_else(|| "must be 64 hexadecimal digits".to_owned())
}

/// Reads the instance; `key` goes before the one in the database.
pub(crate) async fn instance(database: &Database, key: &KeyOverride) -> Result<Instance, Failure> {
    let client = connect(&database.database_url, Role::Gateway)
        .await
        .or_fail("cannot reach the database of the ledger")?;
    let row = client.query_opt(INSTANCE, &[]).await.or_fail("cannot read the ledger's instance")?;
    let row =
        row.ok_or_else(|| Failure::new("this database holds no ledger yet: run `farthing migrate` first"))?;
    let mode = match row.get::<_, &str>(0) {
        "live" => Mode::Live,
        "test" => Mode::Test,
        other => {
            return Err(Failure::new(format!(
                "the ledger's mode is {other:?}, which this program does not know"
            )));
        }
    };
    let server_key = match &key.server_key {
        Some(key) => key.clone(),
        None => ServerKey::from_hex(row.get(1))
            .ok_or_else(|| Failure::new("the ledger's server key is malformed"))?,
    };
    Ok(Instance { mode, server_key })
}
