//! The database of a simulation: the tables, the lock of the head's row, and the faults that connections draw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use chrono::{DateTime, Utc};
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::ids::CustomerId;
use tokio::sync::OwnedMutexGuard;

use super::super::store::Head;
use crate::chain::{GENESIS, Hash};

/// Counts appends that were carried out and wrote once more when they arrived again.
pub(super) const APPENDED_TWICE: &str = "an append wrote twice";

/// The longest time that a message may be on its way, in milliseconds: longer than a writer waits.
const LATEST_MS: u64 = 15_000;

/// An event as it is stored.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) position: i64,
    /// The key in the record.
    pub(super) key: String,
    /// The line.
    pub(super) record: String,
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) writer: String,
    pub(super) hash: Vec<u8>,
}

/// An append, as it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Append {
    pub(super) in_transaction: bool,
    pub(super) expected: Head,
    pub(super) rows: Vec<Row>,
    /// The keys of the rows that must be unique, as in `ledger.facts`.
    pub(super) indexed: Vec<String>,
    pub(super) hash: Hash,
    pub(super) changes: Vec<((&'static str, String), Option<String>)>,
    /// The customers whose personal data is written, or erased.
    pub(super) personal: Vec<(CustomerId, bool)>,
}

/// Everything that is committed.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) head: Head,
    pub(super) events: Vec<Row>,
    /// The keys that an append must not repeat.
    pub(super) indexed: BTreeSet<String>,
    pub(super) states: BTreeMap<(&'static str, String), String>,
    pub(super) claims: BTreeMap<ClaimId, StoredClaim>,
    /// Claims that were released and not made anew.
    pub(super) released: BTreeSet<ClaimId>,
    /// The customers with personal data.
    pub(super) personal: BTreeSet<CustomerId>,
}

impl Disk {
    pub(super) fn append(&mut self, append: Append) {
        let Append { rows, indexed, hash, changes, personal, .. } = append;
        self.head =
            Head { position: rows.last().map_or(self.head.position, |row| row.position), hash, ..self.head };
        self.indexed.extend(indexed);
        self.events.extend(rows);
        for (customer_id, is_kept) in personal {
            if is_kept {
                self.personal.insert(customer_id);
            } else {
                self.personal.remove(&customer_id);
            }
        }
        for (key, body) in changes {
            match body {
                Some(body) => self.states.insert(key, body),
                None => self.states.remove(&key),
            };
        }
    }
}

/// How often something happened in all simulated runs of a test: a simulation proves nothing of what it never does.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Counts(pub(super) BTreeMap<&'static str, u64>);

/// The parts of a database that connections share.
#[derive(Debug)]
struct Shared {
    disk: Mutex<Disk>,
    /// The lock of the head's row. It is fair, as that of Postgres is.
    lock: Arc<tokio::sync::Mutex<()>>,
    random: Mutex<fastrand::Rng>,
    counts: Mutex<Counts>,
    /// Of a thousand messages, so many fail.
    failing: AtomicU32,
}

/// A database.
#[derive(Debug, Clone)]
pub(super) struct Database(Arc<Shared>);

impl Database {
    pub(super) fn new(random: fastrand::Rng) -> Self {
        let disk = Disk {
            head: Head { position: 0, hash: GENESIS, epoch: 1 },
            events: Vec::new(),
            indexed: BTreeSet::new(),
            states: BTreeMap::new(),
            claims: BTreeMap::new(),
            released: BTreeSet::new(),
            personal: BTreeSet::new(),
        };
        Self(Arc::new(Shared {
            disk: Mutex::new(disk),
            lock: Arc::default(),
            random: Mutex::new(random),
            counts: Mutex::default(),
            failing: 0.into(),
        }))
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.disk.lock().unwrap()
    }

    /// Lets so many of a thousand messages fail from now on.
    pub(super) fn fail(&self, per_mille: u32) {
        self.0.failing.store(per_mille, Ordering::Relaxed);
    }

    /// Waits for the lock of the head's row.
    pub(super) async fn lock_head(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0.lock).lock_owned().await
    }

    pub(super) fn count(&self, what: &'static str) {
        *self.0.counts.lock().unwrap().0.entry(what).or_default() += 1;
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.counts.lock().unwrap().clone()
    }

    fn random(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.0.random.lock().unwrap()
    }

    /// The time that a message is on its way when nothing is wrong.
    pub(super) fn latency(&self) -> Duration {
        Duration::from_millis(self.random().u64(..4))
    }

    pub(super) fn lateness(&self) -> Duration {
        let mut random = self.random();
        let bound = [4, 200, LATEST_MS][random.usize(..3)];
        Duration::from_millis(random.u64(..bound))
    }

    pub(super) fn fault(&self) -> Fault {
        let failing = self.0.failing.load(Ordering::Relaxed);
        let mut random = self.random();
        if random.u32(..1000) >= failing {
            return Fault::None;
        }
        let faults = [
            Fault::LoseRequest,
            Fault::LoseReply,
            Fault::Late,
            Fault::Late,
            Fault::Silence,
            Fault::SilentLoss,
            Fault::Repeat,
            Fault::Repeat,
        ];
        faults[random.usize(..faults.len())]
    }
}

/// What goes wrong with one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The connection breaks before the request arrives.
    LoseRequest,
    /// The request is carried out; the connection breaks before the reply arrives.
    LoseReply,
    /// The connection breaks for the writer; the request arrives later.
    Late,
    /// The writer hears nothing; the request arrives late.
    Silence,
    /// The writer hears nothing; the request never arrives.
    SilentLoss,
    /// An append outside of a transaction arrives once more, later.
    Repeat,
}
