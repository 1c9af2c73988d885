//! The connections over which rows are written: a few, which the read models, the idle spans and the webhook outbox share.
//! Most of them have nothing to write most of the time. A statement is prepared once on each connection.

use std::convert::Infallible;
use std::time::Duration;

use deadpool_postgres::{Object, Pool, PoolError};
use farthing_log::connect::{Role, Sessions};
use farthing_log::reads::{close_idle, pool_of, take};

use crate::engine::Error;

/// A batch that a crash loses is folded again from the log.
const NO_WAIT_FOR_DISK: &str = "synchronous_commit = off";

/// A transaction may wait for a comparison of its read model, and is begun again then.
const LOCK_TIMEOUT: &str = "lock_timeout = '20s'";

/// How long a transaction of a running projection may take. Then it counts as one whose connection hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The same, of a command. It may hold up the running projection meanwhile.
const PATIENCE: Duration = Duration::from_mins(15);

/// How long ago a connection may have been taken without being asked whether Postgres still answers on it.
const UNCHECKED: Duration = Duration::from_secs(1);

/// The connections. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Writers {
    pool: Pool,
    /// How long a transaction may take.
    limit: Duration,
}

impl Writers {
    /// At most so many `connections`, opened when they are needed.
    pub(crate) fn new(database_url: &str, connections: usize) -> Result<Self, Error> {
        Self::of(Self::sessions(database_url)?.with(LOCK_TIMEOUT), connections, ANSWER_TIMEOUT)
    }

    fn sessions(database_url: &str) -> Result<Sessions, Error> {
        Ok(Sessions::of(database_url, Role::Projector)?.with(NO_WAIT_FOR_DISK).by_keys())
    }

    fn of(sessions: Sessions, connections: usize, limit: Duration) -> Result<Self, Error> {
        let pool = pool_of(sessions, connections, UNCHECKED);
        let pool = pool.map_err(|error| Error::NoConnection(error.to_string()))?;
        Ok(Self { pool, limit })
    }

    /// One connection for a command that reads the log once. It begins no transaction again, so each may take long.
    pub(crate) fn patient(database_url: &str) -> Result<Self, Error> {
        Self::of(Self::sessions(database_url)?, 1, PATIENCE)
    }

    /// Does `work` on a connection, which may hang without an end.
    pub(crate) async fn answered<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::time::timeout(self.limit, work).await.unwrap_or(Err(Error::Unanswered))
    }

    /// Closes connections that are not needed, again and again.
    pub(crate) async fn close_idle(self) -> Infallible {
        close_idle(vec![self.pool]).await
    }

    /// A connection, once one is free. One on which something failed is closed by [`close_failed`].
    pub(crate) async fn connection(&self) -> Result<Object, Error> {
        take(&self.pool).await.map_err(|error| match error {
            PoolError::Backend(error) => Error::Database(error),
            error => Error::NoConnection(error.to_string()),
        })
    }
}

/// Closes a connection on which something failed, if it did. It must not be used again: what is prepared on it may no longer be
/// right, and after statements that were sent together it may be out of step, so that a response would be taken for that of
/// another statement (see [`Writer`](crate::writer::Writer)).
pub(crate) fn close_failed<T>(connection: Object, result: Result<T, Error>) -> Result<T, Error> {
    if result.is_err() {
        drop(Object::take(connection));
    }
    result
}
