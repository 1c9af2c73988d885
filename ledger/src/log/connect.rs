//! Connections to Postgres, each under the role that may do just what its process does.

use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

/// How long a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a process may do in the database (see `schema/migrations/V2__roles.sql`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Whatever the login may: migrations, audits, rebuilds.
    Owner,
    /// Append facts and read.
    Gateway,
    /// Read the log, own the read models.
    Projector,
}

/// The connection settings of `database_url` under `role`.
pub fn config(database_url: &str, role: Role) -> Result<tokio_postgres::Config, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::from_str(database_url)?;
    config.connect_timeout(CONNECT_TIMEOUT);
    let role = match role {
        Role::Owner => None,
        Role::Gateway => Some("farthing_gateway"),
        Role::Projector => Some("farthing_projector"),
    };
    if let Some(role) = role {
        config.application_name(role);
        let given = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
        config.options(format!("{given}-c role={role}"));
    }
    Ok(config)
}

/// Connects; the connection's task ends when the client is dropped or the server goes away.
pub async fn connect(database_url: &str, role: Role) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config(database_url, role)?.connect(NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(%error, "a connection to Postgres ended");
        }
    });
    Ok(client)
}
