//! The reader at the end of the window. The follower that holds its lock reads for all
//! followers.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{READ_EVENTS, Shared};
use crate::reader::{Entry, Error, Reader};

/// The longest wait for new events without a wake-up notification.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The shortest time between two reads at the end of the log, so that a read of a busy log finds many events.
const READ_INTERVAL: Duration = Duration::from_millis(20);

/// The connection that reads new events, and the wake-up notifications.
#[derive(Debug)]
pub(super) struct Front {
    reader: Option<Reader>,
    notifications: watch::Receiver<i64>,
    last_read: Option<Instant>,
    /// Whether the last read was full, so that more events can be read at once.
    more_at_once: bool,
}

impl Front {
    pub(super) fn new(notifications: watch::Receiver<i64>) -> Self {
        Self { reader: None, notifications, last_read: None, more_at_once: true }
    }

    /// Waits until a read is due, then reads about [`READ_EVENTS`] events after `position`.
    pub(super) async fn read(&mut self, shared: &Shared, position: i64) -> Result<Vec<Entry>, Error> {
        self.wait().await;
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::connect(&shared.database_url, shared.role).await?,
        };
        self.notifications.borrow_and_update();
        self.last_read = Some(Instant::now());
        let entries = reader.read(position, READ_EVENTS).await?;
        self.more_at_once = entries.len() >= READ_EVENTS;
        self.reader = Some(reader);
        Ok(entries)
    }

    /// Waits for a notification or the next poll, and at least for the rest of [`READ_INTERVAL`].
    async fn wait(&mut self) {
        let Some(last_read) = self.last_read.filter(|_| !self.more_at_once) else { return };
        let notified = tokio::time::timeout_at(last_read + POLL_INTERVAL, self.notifications.changed()).await;
        if let Ok(Err(_)) = notified {
            // No task listens for notifications: poll.
            tokio::time::sleep_until(last_read + POLL_INTERVAL).await;
        }
        tokio::time::sleep_until(last_read + READ_INTERVAL).await;
    }
}
