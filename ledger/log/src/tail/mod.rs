//! One shared reader of all partitions of the log per process. Its followers find the newest events in a bounded window,
//! so that each event is read and decoded once for all of them.
//!
//! Invariant: a follower sees every event of a partition, in order, and each is in the chain of the one before. A follower
//! that falls behind the window reads on a separate connection until it has caught up; all of those that are behind share it.

mod follower;
mod front;
mod heads;
mod page;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::follower::Follower;
use self::front::Front;
pub use self::heads::{Lag, SeenHeads};
pub(crate) use self::page::Batches;
pub use self::page::Page;
use self::window::{Lookup, Window};
use super::connect::Role;
use super::nats::NatsConfig;
use super::positions::Positions;
use super::reader::{Error, Reader};
use super::wake_up;

/// Events read at once in all partitions, and the rest of the last record batch of each.
const READ_EVENTS: usize = 2_048;

/// The settings of a tail.
#[derive(Debug, Clone)]
pub struct TailConfig {
    /// The database of the log.
    pub database_url: String,
    /// The role to read under.
    pub role: Role,
    /// The NATS server of the wake-up notifications; without one the log is polled.
    pub nats: Option<NatsConfig>,
}

/// Whether other followers wait for this one in a long catch-up, so that each event is read once for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// They wait while it makes progress.
    Together,
    /// They never wait for it.
    Apart,
}

/// The shared end of the log.
#[derive(Debug, Clone)]
pub struct Tail {
    shared: Arc<Shared>,
}

/// The state that the followers of a tail share.
#[derive(Debug)]
struct Shared {
    database_url: String,
    role: Role,
    window: Mutex<Window>,
    front: tokio::sync::Mutex<Front>,
    /// The connection of the followers that are behind the window, while there are any, and the clearing of the window since
    /// which it is open. Locked while it is made.
    behind: tokio::sync::Mutex<(Weak<Reader>, u64)>,
    heads: Arc<SeenHeads>,
    followers_moved: Notify,
    /// Notifies the followers that the window has new events.
    news: Notify,
}

impl Tail {
    /// Starts to listen for wake-up notifications, until `stop` is cancelled.
    pub fn start(config: TailConfig, stop: CancellationToken, tasks: &TaskTracker) -> Self {
        let (sender, notifications) = watch::channel(());
        if let Some(nats) = config.nats {
            tasks.spawn(async move {
                let listening = wake_up::listen(nats, sender);
                let _ = stop.run_until_cancelled(listening).await;
            });
        }
        let shared = Shared {
            database_url: config.database_url,
            role: config.role,
            window: Mutex::default(),
            front: tokio::sync::Mutex::new(Front::new(notifications)),
            behind: tokio::sync::Mutex::default(),
            heads: Arc::default(),
            followers_moved: Notify::new(),
            news: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The heads of the log as it reads them.
    pub fn heads(&self) -> Arc<SeenHeads> {
        Arc::clone(&self.shared.heads)
    }

    /// Adds a follower. A consumer begins with a new one after each failure, which may have been the failover of Postgres to a
    /// server that lacks the end of the log. So nothing that was read before, or over an older connection, reaches it.
    pub fn follow(&self, pace: Pace) -> Follower {
        let id = {
            let mut window = self.shared.window();
            window.clear_all();
            window.next_follower_id()
        };
        // Those that wait at the end of the window wait at that of another one.
        self.shared.news.notify_waiters();
        Follower::new(Arc::clone(&self.shared), id, pace)
    }
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of the followers that are behind the window.
    async fn reader_behind(&self) -> Result<Arc<Reader>, Error> {
        let mut behind = self.behind.lock().await;
        let clearings = self.window().clearings();
        let open = behind.0.upgrade().filter(|reader| !reader.is_closed() && behind.1 == clearings);
        if let Some(open) = open {
            return Ok(open);
        }
        let reader = Arc::new(Reader::connect(&self.database_url, self.role).await?);
        *behind = (Arc::downgrade(&reader), clearings);
        Ok(reader)
    }

    /// Waits until there may be events after the positions `after`, all at the end of the window. One follower at a time
    /// reads on for all; `news` must be older than the look into the window.
    async fn advance(&self, after: &Positions, news: Notified<'_>) -> Result<(), Error> {
        let mut front = tokio::select! {
            biased;
            () = news => return Ok(()),
            front = self.front.lock() => front,
        };
        // Another follower may have read on in the meantime.
        if !self.are_at_end(after) {
            return Ok(());
        }
        self.wait_for_followers().await;
        front.read(self).await
    }

    fn are_at_end(&self, positions: &Positions) -> bool {
        let mut window = self.window();
        positions.iter().all(|(partition, position)| window.look_up(partition, position) == Lookup::AtEnd)
    }

    /// Keeps followers together in a long catch-up, so that each event is read once for all.
    async fn wait_for_followers(&self) {
        loop {
            let moved = self.followers_moved.notified();
            let Some(until) = self.window().eviction_delayed_until(Instant::now()) else { return };
            let _ = tokio::time::timeout_at(until, moved).await;
        }
    }
}
