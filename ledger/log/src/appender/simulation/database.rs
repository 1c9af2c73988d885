//! The database of a simulation: the tables of each partition with the lock of its head's row, the leases, and the faults
//! that connections draw.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use farthing_core::partition::Partition;
use tokio::sync::OwnedMutexGuard;

use super::super::store::Head;
use super::disk::Disk;
use super::leases::LeaseTable;

/// The longest time that a message may be on its way, in milliseconds: longer than a leader waits and than a lease lasts.
const LATEST_MS: u64 = 15_000;

/// What happened in a run: how often, and what must not. A simulation proves nothing of what it never does.
#[derive(Debug, Default, Clone)]
pub(super) struct Notes(Arc<Mutex<(Counts, Vec<String>)>>);

/// How often things happened.
pub(super) type Counts = BTreeMap<&'static str, u64>;

impl Notes {
    pub(super) fn count(&self, what: &'static str) {
        *self.0.lock().unwrap().0.entry(what).or_default() += 1;
    }

    /// Notes that an invariant is broken. A task cannot fail the test by itself.
    pub(super) fn violation(&self, what: String) {
        self.0.lock().unwrap().1.push(what);
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().unwrap().0.clone()
    }

    /// Fails the test if an invariant was broken.
    pub(super) fn check(&self) {
        let violations = self.0.lock().unwrap().1.clone();
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }
}

/// What belongs to one partition.
#[derive(Debug)]
struct Tables {
    disk: Mutex<Disk>,
    /// The lock of the head's row. It is fair, as that of Postgres is.
    lock: Arc<tokio::sync::Mutex<()>>,
}

/// The parts of a database that connections share.
#[derive(Debug)]
struct Shared {
    partitions: Vec<Tables>,
    leases: Mutex<LeaseTable>,
    random: Mutex<fastrand::Rng>,
    /// Of a thousand messages, so many fail.
    failing: AtomicU32,
    /// A commit takes less than so many milliseconds.
    commit_ms: AtomicU64,
    is_away: AtomicBool,
    /// So many appends are undone for the sake of another transaction.
    conflicts: AtomicU32,
    /// Whether every append fails, and nothing else does.
    refuses_appends: AtomicBool,
}

/// A database, of which this handle sees one partition.
#[derive(Debug, Clone)]
pub(super) struct Database {
    shared: Arc<Shared>,
    partition: Partition,
    pub(super) notes: Notes,
}

impl Database {
    pub(super) fn new(partitions: i16, random: fastrand::Rng) -> Self {
        let notes = Notes::default();
        let tables = |_| Tables { disk: Mutex::new(Disk::new(notes.clone())), lock: Arc::default() };
        let shared = Shared {
            partitions: (0..partitions).map(tables).collect(),
            leases: Mutex::new(LeaseTable::new(partitions, notes.clone())),
            random: Mutex::new(random),
            failing: 0.into(),
            commit_ms: 4.into(),
            is_away: false.into(),
            conflicts: 0.into(),
            refuses_appends: false.into(),
        };
        Self { shared: Arc::new(shared), partition: Partition::new(0), notes }
    }

    /// The same database, of which the handle sees `partition`.
    pub(super) fn of(&self, partition: Partition) -> Self {
        Self { partition, ..self.clone() }
    }

    /// The partition that this handle sees.
    pub(super) const fn partition(&self) -> Partition {
        self.partition
    }

    fn tables(&self) -> &Tables {
        &self.shared.partitions[self.partition.index()]
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.tables().disk.lock().unwrap()
    }

    pub(super) fn leases(&self) -> MutexGuard<'_, LeaseTable> {
        self.shared.leases.lock().unwrap()
    }

    /// As `ledger.lead`.
    pub(super) fn lead(&self, gateway: &str) -> Option<(Head, i64)> {
        if self.leases().holder(self.partition).as_deref() != Some(gateway) {
            self.notes.count("a gateway without the lease could not lead");
            return None;
        }
        Some(self.disk().lead(gateway))
    }

    /// Lets so many of a thousand messages fail from now on.
    pub(super) fn fail(&self, per_mille: u32) {
        self.shared.failing.store(per_mille, Ordering::Relaxed);
    }

    /// Lets a commit take up to so many milliseconds from now on.
    pub(super) fn slow_down(&self, commit_ms: u64) {
        self.shared.commit_ms.store(commit_ms, Ordering::Relaxed);
    }

    /// From now on nobody reaches the database, or everybody does.
    pub(super) fn set_away(&self, is_away: bool) {
        self.shared.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Lets the next appends, so many, be undone for the sake of another transaction.
    pub(super) fn conflict(&self, appends: u32) {
        self.shared.conflicts.store(appends, Ordering::Relaxed);
    }

    /// Whether the append that arrives is undone for the sake of another transaction.
    pub(super) fn has_conflict(&self) -> bool {
        let less = |conflicts: u32| conflicts.checked_sub(1);
        self.shared.conflicts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    pub(super) fn is_away(&self) -> bool {
        self.shared.is_away.load(Ordering::Relaxed)
    }

    /// From now on every append fails, or works again.
    pub(super) fn refuse_appends(&self, refuses: bool) {
        self.shared.refuses_appends.store(refuses, Ordering::Relaxed);
    }

    pub(super) fn refuses_appends(&self) -> bool {
        self.shared.refuses_appends.load(Ordering::Relaxed)
    }

    /// Waits for the lock of the head's row.
    pub(super) async fn lock_head(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.tables().lock).lock_owned().await
    }

    fn random(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.shared.random.lock().unwrap()
    }

    /// The time that a commit takes.
    pub(super) fn commit_time(&self) -> Duration {
        let bound = self.shared.commit_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.random().u64(..bound))
    }

    /// The time that a message is on its way when nothing is wrong.
    pub(super) fn latency(&self) -> Duration {
        Duration::from_millis(self.random().u64(..4))
    }

    pub(super) fn lateness(&self) -> Duration {
        let mut random = self.random();
        let bound = [4, 200, 1_000, LATEST_MS][random.usize(..4)];
        Duration::from_millis(random.u64(..bound))
    }

    pub(super) fn fault(&self) -> Fault {
        let failing = self.shared.failing.load(Ordering::Relaxed);
        let mut random = self.random();
        if random.u32(..1000) >= failing {
            return Fault::None;
        }
        let faults = [
            Fault::Cancel,
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
    /// The statement is cancelled; the connection goes on.
    Cancel,
    /// The connection breaks before the request arrives.
    LoseRequest,
    /// The request is carried out; the connection breaks before the reply arrives.
    LoseReply,
    /// The connection breaks for the gateway; the request arrives later.
    Late,
    /// The gateway hears nothing; the request arrives late.
    Silence,
    /// The gateway hears nothing; the request never arrives.
    SilentLoss,
    /// A request that writes arrives once more, later.
    Repeat,
}
