//! A follower: one consumer of the tail, with its position.

use std::sync::Arc;

use tokio::time::Instant;

use super::window::{Batches, Chunk, Lookup, Page};
use super::{Pace, READ_EVENTS, Shared};
use crate::reader::{Error, Reader};

/// A consumer of the tail.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    id: u64,
    pace: Pace,
    /// The follower's own connection while it is behind the window.
    own: Option<Reader>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.window().remove_follower(self.id);
        self.shared.followers_moved.notify_waiters();
    }
}

impl Follower {
    pub(super) const fn new(shared: Arc<Shared>, id: u64, pace: Pace) -> Self {
        Self { shared, id, pace, own: None }
    }

    /// Waits for events after `position` and returns up to `max` of them. After a failure the caller may go back to an
    /// earlier position. Cancel-safe.
    pub async fn next(&mut self, position: i64, max: usize) -> Result<Page, Error> {
        loop {
            match self.look_up(position, max) {
                Lookup::Inside(page) => {
                    self.own = None;
                    return Ok(page);
                }
                Lookup::Behind => {
                    if let Some(page) = self.read_behind_window(position, max).await? {
                        return Ok(page);
                    }
                }
                Lookup::AtEnd => self.shared.advance(position).await?,
            }
        }
    }

    /// As [`Self::next`], but returns the record batches of the events: each once and whole, with the index
    /// of its first event after `position`. Behind the window no event is decoded.
    pub(crate) async fn next_batches(&mut self, position: i64, max: usize) -> Result<Batches, Error> {
        loop {
            match self.look_up(position, max) {
                Lookup::Inside(page) => {
                    self.own = None;
                    return Ok(page.batches());
                }
                Lookup::Behind => {
                    let reader = self.take_reader().await?;
                    let batches = reader.read_batches(position, max.min(READ_EVENTS)).await?;
                    self.own = Some(reader);
                    if !batches.is_empty() {
                        return Ok(batches);
                    }
                    self.leave_other_log();
                }
                Lookup::AtEnd => self.shared.advance(position).await?,
            }
        }
    }

    /// Records the follower's position and looks for events after it in the window.
    fn look_up(&self, position: i64, max: usize) -> Lookup {
        let mut window = self.shared.window();
        if self.pace == Pace::Together && window.record_position(self.id, position, Instant::now()) {
            self.shared.followers_moved.notify_waiters();
        }
        window.look_up(position, max)
    }

    async fn read_behind_window(&mut self, position: i64, max: usize) -> Result<Option<Page>, Error> {
        let reader = self.take_reader().await?;
        let entries = reader.read(position, max.min(READ_EVENTS)).await?;
        self.own = Some(reader);
        if entries.is_empty() {
            self.leave_other_log();
            return Ok(None);
        }
        Ok(Some(Page::from(Chunk::from(entries))))
    }

    /// The follower's own connection. It is put back after a read that succeeds.
    async fn take_reader(&mut self) -> Result<Reader, Error> {
        match self.own.take() {
            Some(reader) => Ok(reader),
            None => Reader::connect(&self.shared.database_url, self.shared.role).await,
        }
    }

    /// Clears the window, which holds events of a log that no longer exists: the next read starts from this
    /// follower's position.
    fn leave_other_log(&self) {
        self.shared.window().clear();
    }
}
