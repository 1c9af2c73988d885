//! Connections to Postgres, each under the role with the rights of its process, and the text of their errors.

mod database_url;
mod hosts;
mod passfile;
mod postgres_tls;
mod server_end_point;
mod session;

use std::error::Error as _;
use std::io;
use std::iter::successors;
use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

pub use self::database_url::Error as SettingsError;
use self::database_url::Settings;
pub use self::postgres_tls::{Authorities, Check, EncryptedStream, Handshake, PostgresTls};
pub(crate) use self::session::BY_KEYS;
pub use self::session::{Sessions, SessionsError, check_sessions};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// When an idle connection begins to ask whether the server is there, how often, and how many answers may be missing.
/// Postgres asks in the same way whether its client is there (`session.rs`).
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// How long what was sent may be unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// What Postgres, or a pooler before it, says while it starts or stops, or has no room for a session.
const AWAY: [SqlState; 8] = [
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::TOO_MANY_CONNECTIONS,
    // PgBouncer's, for whatever keeps it from the server.
    SqlState::PROTOCOL_VIOLATION,
    SqlState::CONNECTION_EXCEPTION,
    SqlState::CONNECTION_FAILURE,
    SqlState::SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
];

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
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    notice_lost_servers(&mut config);
    Ok((config, tls))
}

/// Lets a connection fail within half a minute if the network swallows it, as it does when the machine of the server is lost.
/// The system's defaults take two hours for an idle connection, and 15 minutes for one that waits. What the URL says wins.
fn notice_lost_servers(config: &mut Config) {
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED);
    }
}

/// Connects under `role`.
pub async fn connect(database_url: &str, role: Role) -> Result<Client, tokio_postgres::Error> {
    let (client, _) = Sessions::of(database_url, role)?.open().await?;
    Ok(client)
}

/// Whether an error, or what caused it, says that Postgres is away and may come back by itself: it cannot be reached, the
/// connection was lost, or it takes no sessions for now. A login or a certificate that is refused needs the operator.
pub fn is_away(error: &(dyn std::error::Error + 'static)) -> bool {
    let Some(of_postgres) = causes(error).find_map(|error| error.downcast_ref::<tokio_postgres::Error>())
    else {
        return false;
    };
    if let Some(code) = of_postgres.code() {
        return AWAY.contains(code);
    }
    // An error of rustls is one of invalid data.
    let is_of_network = |error: &io::Error| error.kind() != io::ErrorKind::InvalidData;
    of_postgres.is_closed() || causes(error).filter_map(|error| error.downcast_ref()).any(is_of_network)
}

/// An error, and what caused it.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    let cause =
        |error: &&'a (dyn std::error::Error + 'static)| -> Option<&'a (dyn std::error::Error + 'static)> {
            (*error).source()
        };
    successors(Some(error), cause)
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

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_away_and_one_that_offers_no_tls_is_not() {
        let error = async |port: u16, mode: &str| {
            let url = format!("postgres://u@127.0.0.1:{port}/d?sslmode={mode}");
            connect(&url, Role::Gateway).await.unwrap_err()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let without_tls = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut socket, b"N").await.unwrap();
            socket
        };
        let (refused, _socket) = tokio::join!(error(port, "require"), without_tls);
        assert!(!is_away(&refused), "{refused}");
        drop(listener);
        let away = error(port, "disable").await;
        assert!(is_away(&away) && is_away(&SessionsError::from(away)));
        assert!(!is_away(&connect("postgres://u@h/d?port=none", Role::Gateway).await.unwrap_err()));
    }

    #[test]
    fn a_connection_is_made_within_the_time_of_the_url_or_five_seconds() {
        for (url, limit) in [
            ("postgres://a@h/b", Duration::from_secs(5)),
            ("postgres://a@h/b?connect_timeout=2", Duration::from_secs(2)),
            ("host=h user=a connect_timeout=60", Duration::from_mins(1)),
        ] {
            assert_eq!(settings_of(url).unwrap().0.get_connect_timeout(), Some(&limit), "{url}");
        }
    }

    #[test]
    fn a_lost_server_is_noticed_within_half_a_minute_unless_the_url_says_otherwise() {
        let (config, _) = settings_of("postgres://a@h/b").unwrap();
        let idle = config.get_keepalives_idle();
        let asked = config.get_keepalives_interval().unwrap() * config.get_keepalives_retries().unwrap();
        assert!(config.get_keepalives() && idle + asked <= Duration::from_secs(30));
        assert_eq!(config.get_tcp_user_timeout(), Some(&UNACKNOWLEDGED));

        let (config, _) = settings_of(
            "postgres://a@h/b?keepalives_idle=70&keepalives_interval=7&keepalives_retries=9&tcp_user_timeout=99",
        )
        .unwrap();
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(70));
        assert_eq!(config.get_keepalives_interval(), Some(Duration::from_secs(7)));
        assert_eq!(config.get_keepalives_retries(), Some(9));
        assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_secs(99)));
    }
}
