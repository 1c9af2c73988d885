//! Command-line flags for the ledger's database, and the instance row (`ledger.instance`): mode and server key.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use farthing_core::partition::Partitions;
use farthing_core::secret::{Mode, ServerKey};
use farthing_log::connect::{self, Role};
use farthing_log::{partitions, server_key};

use crate::secret_file;

const INSTANCE: &str = "SELECT mode, server_key FROM ledger.instance";

/// The variable that replaces the server key kept in the database.
const SERVER_KEY: &str = "FARTHING_SERVER_KEY";

/// Flags that name the database.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Database {
    /// Postgres database of the ledger: postgres://USER@HOST:PORT/NAME?sslmode=verify-full. A command line is visible to
    /// every user of this machine: a password is better in the variable, in PGPASSWORD or in a file.
    #[arg(
        long,
        env = "FARTHING_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        required_unless_present = "database_url_file",
        conflicts_with = "database_url_file"
    )]
    database_url: Option<String>,
    /// As --database-url, read from the first line of a file.
    #[arg(long, env = "FARTHING_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
}

impl Database {
    /// The URL, whose settings and TLS files can be used.
    pub(crate) fn url(&self) -> Result<String> {
        let url = match (&self.database_url, &self.database_url_file) {
            (Some(url), _) => url.clone(),
            (None, Some(file)) => secret_file::first_line("--database-url-file", file)?,
            (None, None) => bail!("--database-url or --database-url-file is required"),
        };
        connect::check(&url).context("the database URL cannot be used")?;
        Ok(url)
    }

    /// The same for a command that needs Postgres at once: the sessions of the database belong to one connection each.
    pub(crate) async fn reachable_url(&self) -> Result<String> {
        let url = self.url()?;
        connect::check_sessions(&url).await.context("cannot connect to the database")?;
        Ok(url)
    }
}

/// Flags that replace the server key kept in the database.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KeyOverride {
    /// File whose first line is the server key, 64 hexadecimal digits. `FARTHING_SERVER_KEY` holds the key itself
    /// [default: the key kept in the database].
    #[arg(long, env = "FARTHING_SERVER_KEY_FILE", value_name = "FILE")]
    server_key_file: Option<PathBuf>,
}

impl KeyOverride {
    /// The key, if one is given. The file comes before the variable with the key itself.
    pub(crate) fn read(&self) -> Result<Option<ServerKey>> {
        let (source, text) = match &self.server_key_file {
            Some(file) => {
                let source = "--server-key-file";
                (source.to_owned(), secret_file::first_line(source, file)?)
            }
            None => match std::env::var_os(SERVER_KEY).filter(|text| !text.is_empty()) {
                Some(text) => (SERVER_KEY.to_owned(), text.into_string().unwrap_or_default()),
                None => return Ok(None),
            },
        };
        let key = ServerKey::from_hex(text.trim());
        key.map(Some).with_context(|| format!("{source}: a server key must be 64 hexadecimal digits"))
    }
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

/// Reads the instance. The server key in `key`, if any, takes precedence over the one in the database.
pub(crate) async fn instance(database_url: &str, key: &KeyOverride) -> Result<Instance> {
    let key = key.read()?;
    let client =
        connect::connect(database_url, Role::Gateway).await.context("cannot connect to the database")?;
    let row = client.query_opt(INSTANCE, &[]).await.context("cannot read the instance from the database")?;
    let row = row.context("the database has no ledger yet: run `farthing migrate` first")?;
    let mode = match row.get::<_, &str>(0) {
        "live" => Mode::Live,
        "test" => Mode::Test,
        other => bail!("the ledger has the mode {other:?}, which this version of farthing does not know"),
    };
    let server_key = match key {
        Some(key) => key,
        None => ServerKey::from_hex(row.get(1)).context("the server key in the database is malformed")?,
    };
    server_key::check(&client, &server_key, server_key::First::Operator)
        .await
        .context("nothing was changed")?;
    let partitions = partitions::load(&client).await.context("cannot read the partitions of the log")?;
    let partitions = partitions.context("the ledger has no partitions: run `farthing migrate` first")?;
    Ok(Instance { mode, server_key, partitions })
}
