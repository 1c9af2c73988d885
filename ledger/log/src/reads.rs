//! Bounded reads: a pool of connections for states and read models, and a deadline on every read.
//!
//! Invariant: a read returns within [`READ_TIMEOUT`] or fails with [`Error::Unavailable`].

use std::convert::Infallible;
use std::error::Error as StdError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, QueueMode,
};
use tokio_postgres::Config;
use tokio_postgres::error::SqlState;

use crate::connect::{Role, Sessions, redacted};
use crate::{appender, reader, states};

/// The longest that one read may take, including the wait for a connection.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest that one statement may run in the database, in milliseconds.
const STATEMENT_TIMEOUT_MS: u32 = 5_000;

/// How long a connection may take to show that Postgres still answers on it.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause before a connection is wanted again of a server that had none left.
const FULL_SERVER_RETRY: Duration = Duration::from_millis(20);

/// The time after which a connection of a pool that nobody takes is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// Why a read has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Postgres cannot be reached or does not answer in time.
    #[error("the ledger is unavailable: {0}")]
    Unavailable(String),
    /// Too many commands wait for the leader that is asked.
    #[error("too many commands wait for the ledger")]
    Overloaded,
    /// The statement is wrong, or a stored value cannot be read.
    #[error("{0}")]
    Internal(String),
}

/// Why a pool cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The connection settings are wrong.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The pool's settings are wrong.
    #[error("the connection pool: {0}")]
    Pool(#[from] deadpool_postgres::BuildError),
}

/// A pool of at most `connections` under the gateway's role, opened on demand. Each statement has a timeout, so that an
/// abandoned read does not keep its connection busy.
pub fn pool(database_url: &str, connections: usize) -> Result<Pool, PoolError> {
    pool_of(sessions(database_url)?, connections, Duration::MAX)
}

/// As [`pool`], for statements that find a few rows by their keys or the first ones in the order of an index. However old
/// the statistics of a table are, few plans read all of it to sort it. Nodes of Citus plan without these settings.
pub fn pool_by_keys(database_url: &str, connections: usize) -> Result<Pool, PoolError> {
    pool_of(sessions(database_url)?.by_keys().with("enable_bitmapscan = off"), connections, Duration::MAX)
}

fn sessions(database_url: &str) -> Result<Sessions, PoolError> {
    let sessions = Sessions::of(database_url, Role::Gateway)?;
    Ok(sessions.with(&format!("statement_timeout = {STATEMENT_TIMEOUT_MS}")))
}

/// A pool of at most `connections` of these sessions, opened on demand. The one that was used last is taken first, so that
/// those that are not needed become idle. One that was taken longer than `unchecked` ago is asked whether Postgres still
/// answers on it before it is taken.
pub fn pool_of(sessions: Sessions, connections: usize, unchecked: Duration) -> Result<Pool, PoolError> {
    let manager = Manager::from_connect(Config::new(), sessions, ManagerConfig::default());
    let pool = Pool::builder(manager).max_size(connections).queue_mode(QueueMode::Lifo);
    let check = Hook::async_fn(move |client, metrics| Box::pin(check(client, *metrics, unchecked)));
    Ok(pool.pre_recycle(check).build()?)
}

/// Asks a connection that was last taken long ago, or before [`LAST_TIMEOUT`], whether Postgres still answers on it.
/// One on which a read took too long may hang without an end, and would be the first that is taken again.
async fn check(client: &ClientWrapper, metrics: Metrics, unchecked: Duration) -> Result<(), HookError> {
    let taken = metrics.recycled.unwrap_or(metrics.created);
    if metrics.last_used() <= unchecked && last_timeout().is_none_or(|timeout| timeout < taken) {
        return Ok(());
    }
    let answer = tokio::time::timeout(CHECK_TIMEOUT, client.simple_query("")).await;
    let answer = answer.map_err(|_| HookError::message("a connection does not answer any more"))?;
    answer.map(drop).map_err(HookError::Backend)
}

/// When a read last took too long, over any connection of this process.
static LAST_TIMEOUT: Mutex<Option<Instant>> = Mutex::new(None);

fn last_timeout() -> Option<Instant> {
    *LAST_TIMEOUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a connection from `pool`. If the server has none left, waits for one of those that the pool has.
pub async fn take(pool: &Pool) -> Result<Object, deadpool_postgres::PoolError> {
    loop {
        match pool.get().await {
            Err(deadpool_postgres::PoolError::Backend(error))
                if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) && pool.status().size > 0 =>
            {
                tokio::time::sleep(FULL_SERVER_RETRY).await;
            }
            taken => return taken,
        }
    }
}

/// Closes the connections of these pools that were not taken for [`IDLE_TIMEOUT`], again and again.
pub async fn close_idle(pools: Vec<Pool>) -> Infallible {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT / 4).await;
        for pool in &pools {
            pool.retain(|_, metrics| metrics.last_used() < IDLE_TIMEOUT);
        }
    }
}

/// Bounded reads over pooled connections.
#[derive(Debug, Clone)]
pub struct ReadPool(Pool);

impl ReadPool {
    /// Reads over the connections of `pool`.
    pub fn new(pool: Pool) -> Self {
        Self(pool)
    }

    /// The pool itself, to see its use.
    pub(crate) const fn pool(&self) -> &Pool {
        &self.0
    }

    /// Whether all connections that it has are in use.
    pub(crate) fn is_busy(&self) -> bool {
        let status = self.0.status();
        status.size > 0 && status.available == 0
    }

    /// Takes a connection from the pool.
    pub async fn connection(&self) -> Result<Object, Error> {
        within(async { take(&self.0).await.map_err(|why| Error::Unavailable(why.to_string())) }).await?
    }
}

/// Runs `read`; fails with [`Error::Unavailable`] after [`READ_TIMEOUT`].
pub async fn within<T>(read: impl Future<Output = T>) -> Result<T, Error> {
    let outcome = tokio::time::timeout(READ_TIMEOUT, read).await;
    outcome.map_err(|_| {
        *LAST_TIMEOUT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Error::Unavailable("a read took too long".to_owned())
    })
}

impl From<appender::Error> for Error {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Internal(why) => Self::Internal(why),
            appender::Error::Overloaded => Self::Overloaded,
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<reader::Error> for Error {
    fn from(error: reader::Error) -> Self {
        match error {
            reader::Error::Database(error) => error.into(),
            unanswered @ reader::Error::Unanswered => Self::Unavailable(unanswered.to_string()),
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    /// A lost connection, a lack of resources or a shutdown of the server is [`Error::Unavailable`]; every other
    /// error is [`Error::Internal`].
    fn from(error: tokio_postgres::Error) -> Self {
        let unavailable = match error.as_db_error() {
            // Classes 08 (connection), 53 (resources) and 57 (operator intervention, such as a shutdown).
            Some(reported) => {
                ["08", "53", "57"].iter().any(|class| reported.code().code().starts_with(class))
            }
            None => error.is_closed() || error.source().is_some_and(<dyn StdError>::is::<std::io::Error>),
        };
        let text = redacted(&error);
        if unavailable { Self::Unavailable(text) } else { Self::Internal(text) }
    }
}

impl From<states::Error> for Error {
    fn from(error: states::Error) -> Self {
        match error {
            states::Error::Postgres(error) => error.into(),
            states::Error::Unreadable { .. } => Self::Internal(error.to_string()),
        }
    }
}
