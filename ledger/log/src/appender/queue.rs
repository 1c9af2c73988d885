//! The bounds of the appender's queue. Invariant: a command is refused at once when there is no place for it, and a
//! settlement always has a place.
//!
//! A place is kept from the submission of a command to its answer, so commands in the batch under way count too.

use std::sync::Arc;
use std::time::Duration;

use farthing_telemetry::{Age, Ages};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Error;
use crate::metrics::LedgerMetrics;

/// The bytes that a command counts for beside its text.
const COMMAND_BYTES: usize = 2 * 1024;

/// The text of a short command, in bytes. Longer ones have half of the bytes, so that those of one merchant leave places to
/// the usual commands of others.
const SHORT_TEXT: usize = 1024;

/// Places of settlements beside those of all other commands. If they are taken too, a settlement waits for one.
pub(super) const SETTLEMENTS: usize = 8_192;

/// The bounds of the queue. They do not apply to settlements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most commands that are not answered yet.
    pub commands: usize,
    /// The most bytes that these commands hold.
    pub bytes: usize,
    /// The longest time until a command is taken into a batch.
    pub timeout: Duration,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { commands: 2_048, bytes: 16 * 1024 * 1024, timeout: Duration::from_secs(5) }
    }
}

/// The places of a queue.
#[derive(Debug, Clone)]
pub(super) struct Places {
    timeout: Duration,
    commands: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// Those of [`Self::bytes`] that commands with a long text may have.
    long: Arc<Semaphore>,
    unanswered: Ages,
    metrics: Arc<LedgerMetrics>,
}

impl Places {
    pub(super) fn new(limits: QueueLimits, metrics: Arc<LedgerMetrics>) -> Self {
        let QueueLimits { commands, bytes, timeout } = limits;
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Self {
            timeout,
            commands: Arc::new(Semaphore::new(commands)),
            bytes: Arc::new(Semaphore::new(bytes)),
            long: Arc::new(Semaphore::new(bytes / 2)),
            unanswered: Ages::default(),
            metrics,
        }
    }

    /// The place of a command with `text_bytes` bytes of text.
    pub(super) fn take(&self, text_bytes: usize) -> Result<Place, Error> {
        let permits = self.permits(text_bytes).ok_or_else(|| {
            self.metrics.shed_full.inc();
            Error::Overloaded
        })?;
        let expires_at = Some(Instant::now() + self.timeout);
        Ok(Place { expires_at, _permits: Some(permits), _age: Some(self.unanswered.begin()) })
    }

    fn permits(&self, text_bytes: usize) -> Option<Permits> {
        let bytes = u32::try_from(text_bytes.saturating_add(COMMAND_BYTES)).ok()?;
        let command = Arc::clone(&self.commands).try_acquire_owned().ok()?;
        let long = if text_bytes > SHORT_TEXT { bytes } else { 0 };
        let long = Arc::clone(&self.long).try_acquire_many_owned(long).ok()?;
        let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(bytes).ok()?;
        Some([command, long, bytes])
    }

    /// The place of a settlement. It does not expire.
    pub(super) fn of_settlement(&self) -> Place {
        Place { expires_at: None, _permits: None, _age: Some(self.unanswered.begin()) }
    }

    /// The commands that are not answered yet.
    pub(super) fn unanswered(&self) -> Ages {
        self.unanswered.clone()
    }
}

type Permits = [OwnedSemaphorePermit; 3];

/// A command's place in the queue; dropping it makes it free.
#[derive(Debug)]
pub(super) struct Place {
    expires_at: Option<Instant>,
    _permits: Option<Permits>,
    _age: Option<Age>,
}

impl Place {
    /// A place of no queue.
    #[cfg(test)]
    pub(super) const fn unbounded() -> Self {
        Self { expires_at: None, _permits: None, _age: None }
    }

    /// Whether the command has waited for too long.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(commands: usize, bytes: usize) -> Places {
        Places::new(QueueLimits { commands, bytes, timeout: Duration::from_secs(5) }, Arc::default())
    }

    #[tokio::test]
    async fn a_queue_is_full_by_commands_until_one_is_answered() {
        let places = places(2, usize::MAX);
        let first = places.take(0).unwrap();
        let _second = places.take(0).unwrap();
        assert_eq!(places.take(0).unwrap_err(), Error::Overloaded);
        drop(first);
        places.take(0).unwrap();
    }

    #[tokio::test]
    async fn a_queue_is_full_by_bytes_until_a_command_is_answered() {
        let places = places(100, 2 * COMMAND_BYTES + 1_000);
        let first = places.take(1_000).unwrap();
        assert_eq!(places.take(1).unwrap_err(), Error::Overloaded, "one byte too many");
        let _second = places.take(0).unwrap();
        drop(first);
        places.take(1_000).unwrap();
        assert_eq!(places.take(usize::MAX).unwrap_err(), Error::Overloaded);
    }

    #[tokio::test]
    async fn long_commands_leave_half_of_the_bytes_to_short_ones() {
        let places = places(100, 20 * COMMAND_BYTES);
        let long: Vec<_> = std::iter::from_fn(|| places.take(COMMAND_BYTES).ok()).collect();
        assert_eq!(long.len(), 5);
        let short: Vec<_> = std::iter::from_fn(|| places.take(0).ok()).collect();
        assert_eq!(short.len(), 10);
        drop(long);
        assert!(places.take(COMMAND_BYTES).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_expires_and_that_of_a_settlement_does_not() {
        let places = places(1, usize::MAX);
        let place = places.take(0).unwrap();
        assert!(!place.has_expired(Instant::now()));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(place.has_expired(Instant::now()));
        assert!(!places.of_settlement().has_expired(Instant::now() + Duration::from_hours(1)));
    }
}
