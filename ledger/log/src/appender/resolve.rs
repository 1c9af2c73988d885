//! Resolves a commit in doubt. Invariant: an append that was given up cannot take effect later, because a lookup that
//! does not find it moves the epoch, under the head's lock.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::batch::EventId;
use super::job::Job;
use super::store::{LogSession as _, LogStore, StoreResult};
use super::writer::{ATTEMPT_TIMEOUT, Writer};
use crate::backoff::Backoff;

/// The first and the longest pause between lookups.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl<S: LogStore> Writer<S> {
    /// Whether the batch with the event `first` was committed. Retries until Postgres answers, and fails the jobs that
    /// arrive meanwhile. `None` if `stop` is cancelled first.
    pub(super) async fn resolve(
        &mut self,
        first: &EventId,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        stop: &CancellationToken,
    ) -> Option<bool> {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut pause = Duration::ZERO;
        loop {
            let waited = tokio::time::sleep(pause);
            let lookup = async {
                waited.await;
                tokio::time::timeout(ATTEMPT_TIMEOUT, self.is_recorded(first)).await
            };
            tokio::pin!(lookup);
            let answer = loop {
                tokio::select! {
                    biased;
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

    /// Looks the event up under the head's lock, so that a commit under way has ended before.
    async fn is_recorded(&mut self, event: &EventId) -> StoreResult<bool> {
        let session = self.store.open().await?;
        session.begin().await?;
        let recorded = session.is_recorded(event).await?;
        if !recorded {
            session.raise_epoch().await?;
        }
        session.commit().await?;
        self.session = Some(session);
        Ok(recorded)
    }
}
