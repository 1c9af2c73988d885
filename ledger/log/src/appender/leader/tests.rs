//! Tests of a leader's commits.

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use farthing_core::command::AlreadyApplied;
use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::ids::{CustomerId, RequestId};
use farthing_core::state::{State, StateKey};
use futures_util::future::join_all;

use super::super::batch::AppendBatch;
use super::super::cache_bound::MAX_CACHED;
use super::super::store::{Head, LogSession, StateChanges};
use super::super::{Appender, ClaimEnd, MAX_BATCH_BYTES, QueueLimits};
use super::*;
use crate::chain::GENESIS;

const LEASE: Duration = Duration::from_hours(1);

/// An empty log that keeps the batches that are appended to it and counts the states that are loaded, and a connection
/// to it.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<Arc<AppendBatch>>>>, Arc<AtomicUsize>);

impl LogStore for Kept {
    type Session = Self;

    fn open(&self) -> impl Future<Output = StoreResult<Self::Session>> + Send {
        ready(Ok(self.clone()))
    }
}

impl LogSession for Kept {
    fn is_closed(&self) -> bool {
        false
    }

    fn lead(&self) -> impl Future<Output = StoreResult<Option<(Head, i64)>>> + Send {
        ready(Ok(Some((Head { position: 0, hash: GENESIS, epoch: 1 }, 0))))
    }

    fn read(&self, _: i64, _: i64) -> impl Future<Output = StoreResult<Vec<Fact>>> + Send {
        ready(Ok(Vec::new()))
    }

    fn load(&self, keys: &[StateKey]) -> impl Future<Output = StoreResult<Vec<Option<State>>>> + Send {
        self.1.fetch_add(keys.len(), Ordering::Relaxed);
        ready(Ok(vec![None; keys.len()]))
    }

    fn find_claims(
        &self,
        _: &[ClaimId],
    ) -> impl Future<Output = StoreResult<Vec<(ClaimId, StoredClaim)>>> + Send {
        ready(Ok(Vec::new()))
    }

    fn append(&self, _: Head, batch: Arc<AppendBatch>) -> impl Future<Output = StoreResult<bool>> + Send {
        self.0.lock().unwrap().push(batch);
        ready(Ok(true))
    }

    fn store_states(
        &self,
        _: i64,
        _: i64,
        _: &StateChanges,
    ) -> impl Future<Output = StoreResult<bool>> + Send {
        ready(Ok(true))
    }

    fn resolve(&self, _: &EventId, _: i64) -> impl Future<Output = StoreResult<bool>> + Send {
        ready(Ok(true))
    }
}

/// Ends up to 30 calls with stored answers of these lengths; all are queued before one is taken. Returns
/// the number of answers in each batch.
async fn batches_of(lengths: &[usize]) -> Vec<usize> {
    let store = Kept::default();
    let (_lease, seen) = watch::channel(Lease::Held { until: Instant::now() + LEASE });
    let (limits, stop) = ((QueueLimits::default(), Arc::default()), CancellationToken::new());
    let (appender, task) = Appender::over(store.clone(), "a test", limits, seen, stop.clone());
    let task = tokio::spawn(task);
    let request_id: RequestId = "req_00000000000000000000000001".parse().unwrap();
    let ids: Vec<_> = (0..lengths.len()).map(|at| ClaimId::stored(at.to_string())).collect();
    let ends = ids.iter().zip(lengths).map(|(id, length)| {
        let end = ClaimEnd::Answer(vec![0; *length].into());
        appender.submit_closing(AlreadyApplied, id.clone(), request_id, end)
    });
    for ended in join_all(ends).await {
        assert_eq!(ended, Ok(()));
    }
    stop.cancel();
    task.await.unwrap();
    let batches = store.0.lock().unwrap().clone();
    let answered = batches.iter().flat_map(|batch| &batch.claims.changes.answered);
    assert!(answered.map(|(id, ..)| id).eq(&ids), "each is stored once, in the order of the commands");
    batches.iter().map(|batch| batch.claims.changes.answered.len()).collect()
}

#[tokio::test(start_paused = true)]
async fn reads_without_an_event_leave_few_states_in_memory() {
    const READ: usize = 1_000;
    let store = Kept::default();
    let (_lease, seen) = watch::channel(Lease::Held { until: Instant::now() + LEASE });
    let (limits, stop) = ((QueueLimits::default(), Arc::default()), CancellationToken::new());
    let (appender, task) = Appender::over(store.clone(), "a test", limits, seen, stop.clone());
    let task = tokio::spawn(task);
    for _ in 0..2 {
        for number in 0..READ {
            let customer_id = CustomerId::new(ulid::Ulid::from_parts(1, number as u128));
            assert_eq!(appender.states(None, vec![StateKey::Customer(customer_id)]).await, Ok(vec![None]));
        }
    }
    stop.cancel();
    task.await.unwrap();
    // What is in memory is not loaded again.
    let loaded = store.1.load(Ordering::Relaxed);
    assert!(loaded > 2 * READ - 2 * MAX_CACHED.states && loaded <= 2 * READ, "{loaded}");
}

#[tokio::test(start_paused = true)]
async fn a_term_ends_with_its_lease_and_not_before() {
    let held = |seconds| Lease::Held { until: Instant::now() + Duration::from_secs(seconds) };
    let began = Instant::now();
    let (lease, seen) = watch::channel(held(2));
    let (limits, stop) = ((QueueLimits::default(), Arc::default()), CancellationToken::new());
    let (appender, task) = Appender::over(Kept::default(), "a test", limits, seen, stop.clone());
    let task = tokio::spawn(task);
    let mut leads = appender.leads();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        lease.send_replace(held(2));
        assert_eq!(appender.states(None, Vec::new()).await, Ok(Vec::new()));
    }
    leads.wait_for(|leads| !leads).await.unwrap();
    // Timers are of a millisecond.
    let (led, renewed) = (began.elapsed(), Duration::from_secs(5));
    assert!(led >= renewed && led <= renewed + Duration::from_millis(5), "{led:?}");

    lease.send_replace(held(10));
    leads.wait_for(|leads| *leads).await.unwrap();
    assert_eq!(appender.states(None, Vec::new()).await, Ok(Vec::new()));
    let taken = Instant::now();
    lease.send_replace(Lease::None);
    leads.wait_for(|leads| !leads).await.unwrap();
    assert!(taken.elapsed() <= Duration::from_millis(5), "a lease that is taken ends at once");
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn commands_beyond_the_bytes_of_a_batch_come_in_the_next_ones() {
    assert_eq!(batches_of(&[MAX_BATCH_BYTES / 8; 20]).await, [8, 8, 4]);
    assert_eq!(batches_of(&[MAX_BATCH_BYTES / 100; 30]).await, [30], "few bytes in all");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_longer_than_a_batch_has_one() {
    let (short, long) = (MAX_BATCH_BYTES / 8, MAX_BATCH_BYTES + 1);
    assert_eq!(batches_of(&[short, long, short, short]).await, [2, 2]);
    assert_eq!(batches_of(&[long, long, short]).await, [1, 1, 1]);
}
