//! Connections to Postgres, each under the role with the rights of its process, and the text of their errors.

mod database_url;
mod passfile;
mod postgres_tls;
mod server_end_point;
mod session;

use std::error::Error as _;
use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config};

pub use self::database_url::Error as SettingsError;
use self::database_url::Settings;
pub use self::postgres_tls::{Authorities, Check, EncryptedStream, Handshake, PostgresTls};
pub use self::session::{Sessions, SessionsError, check_sessions};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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

impl Role {
    /// Its name in Postgres; `None` for the rights of the login.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Owner => None,
            Self::Gateway => Some("farthing_gateway"),
            Self::Projector => Some("farthing_projector"),
        }
    }
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

/// The connection settings of `database_url`, and its TLS. A session of them has the rights of its login, and none of the
/// settings that [`Sessions`] begin with.
pub fn settings_of(database_url: &str) -> Result<(Config, PostgresTls), tokio_postgres::Error> {
    let Settings { mut config, tls } = match database_url::settings(database_url) {
        Ok(settings) => settings,
        Err(SettingsError::Postgres(error)) => return Err(error),
        // A file of passwords that has gone since the start leaves a connection without a password. All else that can be
        // wrong is also unknown to tokio-postgres, which refuses it.
        Err(_) => Settings { config: Config::from_str(database_url)?, tls: PostgresTls::unchecked() },
    };
    config.connect_timeout(CONNECT_TIMEOUT);
    Ok((config, tls))
}

/// Connects under `role`.
pub async fn connect(database_url: &str, role: Role) -> Result<Client, tokio_postgres::Error> {
    let (client, _) = Sessions::of(database_url, role)?.open().await?;
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
