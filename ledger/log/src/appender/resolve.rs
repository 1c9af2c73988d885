//! Resolves a commit in doubt. Invariant: an append that was given up cannot take effect later, because a lookup that
//! does not find it moves the epoch, under the head's lock.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::job::Job;
use super::session::{IS_RECORDED, NEXT_EPOCH, Session};
use super::writer::{ATTEMPT_TIMEOUT, Writer};
use crate::backoff::Backoff;

/// The first and the longest pause between lookups.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl Writer {
    /// Whether the batch with the fact `key` was committed. Retries until Postgres answers, and fails the jobs that
    /// arrive meanwhile. `None` if `stop` is cancelled first.
    pub(super) async fn resolve(
        &mut self,
        key: &str,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        stop: &CancellationToken,
    ) -> Option<bool> {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut pause = Duration::ZERO;
        loop {
            let waited = tokio::time::sleep(pause);
            let lookup = async {
                waited.await;
                tokio::time::timeout(ATTEMPT_TIMEOUT, self.is_recorded(key)).await
            };
            tokio::pin!(lookup);
            let answer = loop {
                tokio::select! {
                    answer = &mut lookup => break answer,
                    () = stop.cancelled() => return None,
                    Some(job) = queue.recv() => job.fail("Postgres is away"),
                }
            };
            match answer {
                Ok(Ok(recorded)) => return Some(recorded),
                Ok(Err(error)) => tracing::warn!(
                    event = "appender.commit_unresolved",
                    %error,
                    "cannot look up yet whether a batch was committed"
                ),
                Err(_) => tracing::warn!(
                    event = "appender.commit_unresolved",
                    error = "Postgres does not answer",
                    "cannot look up yet whether a batch was committed"
                ),
            }
            pause = backoff.next_delay();
        }
    }

    /// Looks the fact up under the head's lock, so that a commit under way has ended before.
    async fn is_recorded(&mut self, key: &str) -> Result<bool, tokio_postgres::Error> {
        let session = Session::open(&self.config).await?;
        session.client.batch_execute("BEGIN").await?;
        session.client.query_one(&session.lock_head, &[]).await?;
        let recorded: bool = session.client.query_one(IS_RECORDED, &[&key]).await?.get(0);
        if !recorded {
            session.client.batch_execute(NEXT_EPOCH).await?;
        }
        session.client.batch_execute("COMMIT").await?;
        self.session = Some(session);
        Ok(recorded)
    }
}
