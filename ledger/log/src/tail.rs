//! One shared reader of the log per process: its consumers find the newest events in a bounded window, so that
//! each event is read and decoded once for all of them. Invariant: a consumer sees every event in order; a slow
//! one may fall out of the window, and then reads by itself until it is back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connect::Role;
use super::reader::{Entry, Error, Reader};
use super::wake_up;

/// Events read at once.
const READ_EVENTS: usize = 2_048;
/// Events kept in the window at most.
const WINDOW_EVENTS: usize = 32_768;
/// Bytes of bodies kept in the window at most.
const WINDOW_BYTES: usize = 48 * 1024 * 1024;
/// The longest wait for new events without a doorbell.
const POLL: Duration = Duration::from_millis(250);
/// The shortest time between two reads at the end of the log: lets a busy log gather a worthwhile read.
const READ_INTERVAL: Duration = Duration::from_millis(20);
/// How long the front waits for a consumer that stands still before the window moves on without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where the log is, and where its doorbell rings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database.
    pub database_url: String,
    /// Under which role to read.
    pub role: Role,
    /// The doorbell; without one the log is polled.
    pub nats_url: Option<String>,
}

/// Do the other consumers wait a while for this one in a long catch-up, to share what is read?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// They wait, as long as it moves.
    Together,
    /// They never wait for it.
    Apart,
}

/// The shared end of the log.
#[derive(Debug, Clone)]
pub struct Tail {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database_url: String,
    role: Role,
    window: Mutex<Window>,
    front: tokio::sync::Mutex<Front>,
    followers_moved: Notify,
}

/// Whoever holds this reads on at the window's end.
#[derive(Debug)]
struct Front {
    reader: Option<Reader>,
    doorbell: watch::Receiver<i64>,
    last_read: Option<Instant>,
    more_at_once: bool,
}

impl Tail {
    /// Starts listening to the doorbell.
    pub fn start(config: Config, stop: CancellationToken, tasks: &TaskTracker) -> Self {
        let (ring, doorbell) = watch::channel(0);
        if let Some(nats_url) = config.nats_url {
            tasks.spawn(async move {
                let listening = wake_up::listen(nats_url, ring);
                let _ = stop.run_until_cancelled(listening).await;
            });
        }
        let front = Front { reader: None, doorbell, last_read: None, more_at_once: true };
        let shared = Shared {
            database_url: config.database_url,
            role: config.role,
            window: Mutex::default(),
            front: tokio::sync::Mutex::new(front),
            followers_moved: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A new consumer.
    pub fn follow(&self, pace: Pace) -> Follower {
        let mut window = self.shared.window();
        window.last_id += 1;
        Follower { shared: Arc::clone(&self.shared), id: window.last_id, pace, own: None }
    }
}

/// Events that stand together in the window.
#[derive(Debug)]
struct Batch {
    entries: Vec<Entry>,
    bytes: usize,
}

impl Batch {
    fn new(entries: Vec<Entry>) -> Self {
        let bytes = entries.iter().map(|entry| entry.body().len()).sum();
        Self { entries, bytes }
    }

    fn first(&self) -> i64 {
        self.entries.first().map_or(0, Entry::position)
    }

    fn last(&self) -> i64 {
        self.entries.last().map_or(0, Entry::position)
    }
}

/// The newest events that were read. Invariant: its batches adjoin, and none is empty.
#[derive(Debug, Default)]
struct Window {
    batches: VecDeque<Arc<Batch>>,
    events: usize,
    bytes: usize,
    last_id: u64,
    followers: HashMap<u64, Attendance>,
}

/// Where a consumer stands, and since when.
#[derive(Debug, Clone, Copy)]
struct Attendance {
    position: i64,
    since: Instant,
}

enum Place {
    /// There is something for the consumer here.
    Inside(Page),
    /// The consumer has seen all: read on after the position it stands at.
    AtEnd,
    /// The consumer is behind the window.
    Behind,
}

impl Window {
    fn place(&self, position: i64, max: usize) -> Place {
        let (Some(oldest), Some(newest)) = (self.batches.front(), self.batches.back()) else {
            return Place::AtEnd;
        };
        if position >= newest.last() {
            return Place::AtEnd;
        }
        if position + 1 < oldest.first() {
            return Place::Behind;
        }
        let start = self.batches.partition_point(|batch| batch.last() <= position);
        let mut runs = Vec::new();
        let mut wanted = max;
        for batch in self.batches.range(start..) {
            let skipped = usize::try_from(position + 1 - batch.first()).unwrap_or(0);
            let taken = (batch.entries.len() - skipped).min(wanted);
            runs.push(Run { batch: Arc::clone(batch), start: skipped, end: skipped + taken });
            wanted -= taken;
            if wanted == 0 {
                break;
            }
        }
        Place::Inside(Page { runs })
    }

    /// Would one more read push out the oldest batch, while a consumer that moves still needs it? Until when to
    /// wait for that consumer?
    fn held_back_until(&self, now: Instant) -> Option<Instant> {
        let full = self.events + READ_EVENTS > WINDOW_EVENTS || self.bytes > WINDOW_BYTES / 2;
        let oldest = self.batches.front().filter(|_| full)?;
        let needs_it = |standing: &&Attendance| {
            standing.position + 1 >= oldest.first() && standing.position < oldest.last()
        };
        let patient = self.followers.values().filter(needs_it).map(|standing| standing.since + PATIENCE);
        patient.filter(|until| *until > now).max()
    }

    /// Adds what was read after `position`; a window that ends elsewhere begins anew.
    fn push(&mut self, position: i64, batch: Batch) {
        if self.batches.back().is_some_and(|newest| newest.last() != position) {
            self.clear();
        }
        self.events += batch.entries.len();
        self.bytes += batch.bytes;
        self.batches.push_back(Arc::new(batch));
        while (self.events > WINDOW_EVENTS || self.bytes > WINDOW_BYTES) && self.batches.len() > 1 {
            if let Some(oldest) = self.batches.pop_front() {
                self.events -= oldest.entries.len();
                self.bytes -= oldest.bytes;
            }
        }
    }

    fn clear(&mut self) {
        self.batches.clear();
        (self.events, self.bytes) = (0, 0);
    }
}

/// Consecutive events of one batch.
#[derive(Debug)]
struct Run {
    batch: Arc<Batch>,
    start: usize,
    end: usize,
}

/// Consecutive events, at least one.
#[derive(Debug)]
pub struct Page {
    runs: Vec<Run>,
}

impl Page {
    /// The events in order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.runs.iter().flat_map(|run| &run.batch.entries[run.start..run.end])
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A consumer's place at the tail.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<Shared>,
    id: u64,
    pace: Pace,
    own: Option<Reader>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.window().followers.remove(&self.id);
        self.shared.followers_moved.notify_waiters();
    }
}

impl Follower {
    /// Waits for events after `position` and takes up to `max` of them. To ask again from an earlier position,
    /// after a failure, is allowed. Cancel-safe.
    pub async fn next(&mut self, position: i64, max: usize) -> Result<Page, Error> {
        loop {
            match self.place(position, max) {
                Place::Inside(page) => {
                    self.own = None;
                    return Ok(page);
                }
                Place::Behind => {
                    if let Some(page) = self.read_alone(position, max).await? {
                        return Ok(page);
                    }
                }
                Place::AtEnd => self.shared.advance(position).await?,
            }
        }
    }

    /// Says where this consumer stands, and finds its place.
    fn place(&self, position: i64, max: usize) -> Place {
        let mut window = self.shared.window();
        if self.pace == Pace::Together {
            let now = Instant::now();
            let standing = window.followers.entry(self.id).or_insert(Attendance { position, since: now });
            if standing.position != position {
                *standing = Attendance { position, since: now };
                self.shared.followers_moved.notify_waiters();
            }
        }
        window.place(position, max)
    }

    async fn read_alone(&mut self, position: i64, max: usize) -> Result<Option<Page>, Error> {
        let reader = match self.own.take() {
            Some(reader) => reader,
            None => Reader::connect(&self.shared.database_url, self.shared.role).await?,
        };
        let entries = reader.read(position, max.min(READ_EVENTS)).await?;
        self.own = Some(reader);
        if entries.is_empty() {
            // The window is of a log that is no more: begin anew here.
            self.shared.window().clear();
            return Ok(None);
        }
        let end = entries.len();
        Ok(Some(Page { runs: vec![Run { batch: Arc::new(Batch::new(entries)), start: 0, end }] }))
    }
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on after `position`, the window's end, once it is this consumer's turn and there is something new.
    async fn advance(&self, position: i64) -> Result<(), Error> {
        let mut front = self.front.lock().await;
        loop {
            // Another consumer may have read on in the meantime.
            if !matches!(self.window().place(position, 1), Place::AtEnd) {
                return Ok(());
            }
            self.wait_for_followers().await;
            let entries = front.read(self, position).await?;
            if !entries.is_empty() {
                self.window().push(position, Batch::new(entries));
                return Ok(());
            }
        }
    }

    /// Keeps consumers together in a long catch-up, so that they share what is read.
    async fn wait_for_followers(&self) {
        loop {
            let moved = self.followers_moved.notified();
            let Some(until) = self.window().held_back_until(Instant::now()) else { return };
            let _ = tokio::time::timeout_at(until, moved).await;
        }
    }
}

impl Front {
    async fn read(&mut self, shared: &Shared, position: i64) -> Result<Vec<Entry>, Error> {
        self.wait_for_news().await;
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::connect(&shared.database_url, shared.role).await?,
        };
        self.doorbell.borrow_and_update();
        self.last_read = Some(Instant::now());
        let entries = reader.read(position, READ_EVENTS).await?;
        self.more_at_once = entries.len() == READ_EVENTS;
        self.reader = Some(reader);
        Ok(entries)
    }

    async fn wait_for_news(&mut self) {
        let Some(last_read) = self.last_read.filter(|_| !self.more_at_once) else { return };
        let rung = tokio::time::timeout_at(last_read + POLL, self.doorbell.changed()).await;
        if let Ok(Err(_)) = rung {
            // Nobody rings: poll.
            tokio::time::sleep_until(last_read + POLL).await;
        }
        tokio::time::sleep_until(last_read + READ_INTERVAL).await;
    }
}
