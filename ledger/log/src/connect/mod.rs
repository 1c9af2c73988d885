//! Connections to Postgres, each under the role with the rights of its process, and the text of their errors.

mod database_url;
mod passfile;
mod postgres_tls;
mod server_end_point;

use std::error::Error as _;
use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config};

pub use self::database_url::Error as SettingsError;
use self::database_url::Settings;
pub use self::postgres_tls::{Authorities, Check, EncryptedStream, Handshake, PostgresTls};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// TCP keepalives. With them, Postgres frees the locks of a client whose machine is gone within half a minute; by
/// default that takes two hours. They have no effect on a Unix socket.
const KEEPALIVES: &str = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3";

/// The compiler of plans costs up to a second for a statement that runs in a millisecond, and is on by default.
const PLANS: &str = "-c jit=off";

/// Where names without a schema are looked up: among Postgres's own alone, after which come the session's temporary tables.
/// Otherwise a role that may create schemas could put functions in the way of a role with more rights.
const SEARCH_PATH: &str = "-c search_path=pg_catalog,pg_temp";

/// The rights of a process in the database (see `schema/migrations/V2__roles.sql`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The rights of the login itself: migrations, audits, rebuilds.
    Owner,
    /// Append facts and read.
    Gateway,
    /// Read the log, own the read models.
    Projector,
}

/// Checks the settings of `database_url`, and that the files of its TLS can be used. Every process does so when it starts:
/// a setting that is wrong ends it then, with an error that names it.
pub fn check(database_url: &str) -> Result<(), SettingsError> {
    let Settings { config, tls } = database_url::settings(database_url)?;
    match config.get_ssl_mode() {
        SslMode::Disable => Ok(()),
        _ => tls.client_config().map(drop),
    }
}

/// The connection settings of `database_url` under `role`, and its TLS.
pub fn config(database_url: &str, role: Role) -> Result<(Config, PostgresTls), tokio_postgres::Error> {
    let Settings { mut config, tls } = match database_url::settings(database_url) {
        Ok(settings) => settings,
        Err(SettingsError::Postgres(error)) => return Err(error),
        // A file of passwords that has gone since the start leaves a connection without a password. All else that can be
        // wrong is also unknown to tokio-postgres, which refuses it.
        Err(_) => Settings { config: Config::from_str(database_url)?, tls: PostgresTls::unchecked() },
    };
    config.connect_timeout(CONNECT_TIMEOUT);
    let given = config.get_options().map(|options| format!("{options} ")).unwrap_or_default();
    let options = format!("{PLANS} {given}{KEEPALIVES} {SEARCH_PATH}");
    let role = match role {
        Role::Owner => None,
        Role::Gateway => Some("farthing_gateway"),
        Role::Projector => Some("farthing_projector"),
    };
    match role {
        Some(role) => config.application_name(role).options(format!("{options} -c role={role}")),
        None => config.options(options),
    };
    Ok((config, tls))
}

/// Connects under `role`.
///
/// The connection runs in a task of its own that nobody joins, as tokio-postgres intends: the task ends when the client
/// is dropped, after it has sent the statements still queued and closed the session, or when the server goes away.
/// Aborting it with the client would lose those statements, such as the rollback of a dropped transaction.
pub async fn connect(database_url: &str, role: Role) -> Result<Client, tokio_postgres::Error> {
    let (config, tls) = config(database_url, role)?;
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(event = "postgres.connection_lost", ?role, %error, "a connection to Postgres ended");
        }
    });
    Ok(client)
}

/// The text of a Postgres error that may be shown: its message and SQLSTATE, or the cause of a broken connection. It
/// leaves out the error's detail, which quotes the values of a statement.
pub fn redacted(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(reported), _) => format!("{} (SQLSTATE {})", reported.message(), reported.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_is_kept_alive_and_keeps_the_options_it_was_given() {
        let url = "postgres://u@h/d?options=-c%20lock_timeout%3D1s";
        for (role, end) in
            [(Role::Owner, "search_path=pg_catalog,pg_temp"), (Role::Gateway, "role=farthing_gateway")]
        {
            let (config, _) = config(url, role).unwrap();
            let options = config.get_options().unwrap();
            assert!(
                options.starts_with("-c jit=off -c lock_timeout=1s -c tcp_keepalives_idle="),
                "{options}"
            );
            assert!(options.ends_with(end), "{options}");
        }
    }
}
