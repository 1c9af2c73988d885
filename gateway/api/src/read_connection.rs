//! A connection for reads, with the turn that it was taken with.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Object;
use farthing_log::reads::{self, ReadPool};

use crate::error::ApiError;
use crate::read_turns::ReadTurn;

/// How long a connection may stay busy with a statement that nobody waits for: longer than Postgres lets one run. One that
/// stays busy for longer hangs.
const ABANDONED_TIMEOUT: Duration = Duration::from_secs(6);

const HELD: &str = "it is held until it is dropped";

/// A connection. It and the turn are held until Postgres has answered all statements that are counted.
pub(crate) struct ReadConnection {
    /// `None` once it is dropped.
    held: Option<(Object, ReadTurn)>,
    unanswered: AtomicUsize,
}

impl ReadConnection {
    /// One of the connections of `reads`, for who has the `turn`.
    pub(crate) async fn open(reads: &ReadPool, turn: ReadTurn) -> Result<Self, ApiError> {
        let connection = reads.connection().await?;
        Ok(Self { held: Some((connection, turn)), unanswered: AtomicUsize::new(0) })
    }

    /// The outcome of `read`, which uses this connection, or a 503 when it takes too long. Counts its statements.
    pub(crate) async fn within<T, E: Into<ApiError>>(
        &self,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ApiError> {
        counted(&self.unanswered, read).await
    }

    /// The connection for a transaction, and the number of its statements that Postgres has not answered, for [`counted`].
    pub(crate) const fn for_transaction(&mut self) -> (&mut Object, &AtomicUsize) {
        (&mut self.held.as_mut().expect(HELD).0, &self.unanswered)
    }

    /// The number of the statements that Postgres has not answered.
    pub(crate) const fn unanswered(&self) -> &AtomicUsize {
        &self.unanswered
    }
}

/// The outcome of `read`, or a 503 when it takes too long. Counts it as one of the `unanswered` statements.
pub(crate) async fn counted<T, E: Into<ApiError>>(
    unanswered: &AtomicUsize,
    read: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError> {
    unanswered.fetch_add(1, Ordering::Relaxed);
    // If it takes too long, or the caller leaves, the connection is still busy with it.
    let outcome = reads::within(read).await?;
    unanswered.fetch_sub(1, Ordering::Relaxed);
    outcome.map_err(Into::into)
}

impl Deref for ReadConnection {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.held.as_ref().expect(HELD).0
    }
}

impl Drop for ReadConnection {
    /// If the caller has left while a statement runs, the connection is of no use to others before that has ended, and the
    /// statement still counts for its merchant.
    fn drop(&mut self) {
        let Some((connection, turn)) = self.held.take() else { return };
        if *self.unanswered.get_mut() == 0 {
            return;
        }
        tokio::spawn(async move {
            let answer = tokio::time::timeout(ABANDONED_TIMEOUT, connection.batch_execute("")).await;
            if answer.is_err() {
                drop(Object::take(connection));
            }
            drop(turn);
        });
    }
}
