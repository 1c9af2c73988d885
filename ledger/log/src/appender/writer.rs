//! The writer: one connection, the head as last seen, and a cache of the states at that head.
//!
//! While no other process writes, a batch is decided on the states at the last known head and appended by one
//! statement, which writes only if the head has not moved (optimistic). Once another writer has been seen, the writer
//! locks the head first, applies the other's events to its states (catch-up), and then decides.

use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::batch::{AppendBatch, EventId};
use super::failure::{Blame, FailedAttempt, Failure};
use super::job::{DecideResult, Job};
use super::store::{Head, LogSession, LogStore};
use farthing_core::event::Fact;
use farthing_core::idempotency::ClaimId;
use farthing_core::state::{Missing, StateCache, StateKey};

/// The most events of other writers that are applied to the cached states. Beyond that, loading the states again is
/// cheaper.
const MAX_CATCH_UP: i64 = 2_000;

/// A position that no event follows.
const BEYOND_THE_LOG: i64 = i64::MAX / 2;

/// The number of cached states above which the cache is shrunk, and the number that it is shrunk to.
const MAX_CACHED: usize = 200_000;
const CACHED_AFTER_SHRINKING: usize = 150_000;

/// The most loads of missing states in one batch.
const MAX_LOADS: usize = 4_096;

/// Batches in a row without another writer, after which the writer appends optimistically again.
const UNCONTENDED_BATCHES: u32 = 16;

/// The time of an attempt or a lookup after which Postgres counts as unreachable.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Owns the writing connection and the cache of states at its head.
pub(super) struct Writer<S: LogStore> {
    pub(super) store: S,
    name: String,
    newest: watch::Sender<i64>,
    pub(super) session: Option<S::Session>,
    head: Option<Head>,
    states: StateCache,
    /// Batches since another writer was seen.
    uncontended_batches: u32,
    /// The first event of the batch that Postgres has been asked to append.
    in_flight: Option<EventId>,
}

impl<S: LogStore> Writer<S> {
    /// A writer called `name` that is not connected yet. It sends each new head position to `newest`.
    pub(super) fn new(store: S, name: &str, newest: watch::Sender<i64>) -> Self {
        Self {
            store,
            name: name.to_owned(),
            newest,
            session: None,
            head: None,
            states: StateCache::default(),
            uncontended_batches: 0,
            in_flight: None,
        }
    }

    /// Decides `jobs`, appends their facts and answers each of them. Jobs that arrive while a commit in doubt is
    /// resolved fail at once.
    pub(super) async fn append(
        &mut self,
        mut jobs: Vec<Box<dyn Job>>,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        stop: &CancellationToken,
    ) {
        loop {
            let attempted = tokio::time::timeout(ATTEMPT_TIMEOUT, self.attempt(&mut jobs)).await;
            let FailedAttempt { failure, in_doubt } = match attempted {
                Ok(Ok(())) => return self.confirm(jobs),
                Ok(Err(failed)) => failed,
                Err(_) => FailedAttempt { failure: Failure::Timeout, in_doubt: self.in_flight.take() },
            };
            tracing::warn!(
                event = "appender.append_failed",
                %failure,
                in_doubt = in_doubt.is_some(),
                "an append failed"
            );
            // Closing the connection ends a statement that was still running on it.
            self.session = None;
            self.forget();
            let blame = if in_doubt.is_some() { Blame::Store } else { failure.blame() };
            let committed = match in_doubt {
                Some(first) => self.resolve(&first, queue, stop).await,
                None => Some(false),
            };
            match committed {
                Some(true) => return self.confirm(jobs),
                Some(false) => {}
                // The outcome is unknown, so the callers get no answer: their channels close.
                None => return,
            }
            match blame {
                Blame::Job(job) => {
                    jobs.remove(job).end(failure.answer());
                    if jobs.is_empty() {
                        return;
                    }
                }
                // Halves are appended until the job to blame is alone; all others succeed.
                Blame::AnyJob if jobs.len() > 1 => {
                    let second = jobs.split_off(jobs.len() / 2);
                    Box::pin(self.append(jobs, queue, stop)).await;
                    return Box::pin(self.append(second, queue, stop)).await;
                }
                Blame::AnyJob | Blame::Store => {
                    for job in jobs {
                        job.end(failure.answer());
                    }
                    return;
                }
            }
        }
    }

    /// Announces the new head and answers `jobs`: they are durable.
    fn confirm(&mut self, jobs: Vec<Box<dyn Job>>) {
        if let Some(head) = self.head {
            self.newest.send_if_modified(|newest| std::mem::replace(newest, head.position) != head.position);
        }
        for job in jobs {
            job.confirm();
        }
        self.states.forget_unknown_keys();
        if self.states.len() > MAX_CACHED {
            self.states.shrink_to(CACHED_AFTER_SHRINKING);
        }
    }

    fn forget(&mut self) {
        self.head = None;
        self.uncontended_batches = 0;
        self.states.clear();
    }

    async fn attempt(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), FailedAttempt> {
        // The event of an earlier batch must not be looked up for this one, not even if opening the connection times out.
        self.in_flight = None;
        let session = match self.session.take() {
            Some(session) if !session.is_closed() => session,
            _ => {
                self.forget();
                self.store.open().await.map_err(Failure::Unreachable)?
            }
        };
        let needs_transaction = jobs.iter().any(|job| job.needs_transaction());
        let uncontended = self.uncontended_batches >= UNCONTENDED_BATCHES;
        let optimistic = if uncontended && !needs_transaction { self.head } else { None };
        let mut done = false;
        let mut result = Ok(());
        if let Some(head) = optimistic {
            match self.append_optimistic(&session, head, jobs).await {
                Ok(appended) => done = appended,
                Err(failed) => result = Err(failed),
            }
        }
        if !done && result.is_ok() {
            result = self.append_locked(&session, jobs).await;
        }
        self.session = Some(session);
        result
    }

    /// Decides at `head`, the head last seen, and appends only if it has not moved; `false` when it has.
    async fn append_optimistic(
        &mut self,
        session: &S::Session,
        head: Head,
        jobs: &mut [Box<dyn Job>],
    ) -> Result<bool, FailedAttempt> {
        let mut batch = AppendBatch::after(head.position, head.hash, self.name.clone());
        let decided = self.decide(session, jobs, &mut batch, Some(head.position)).await?;
        let appended = if !decided {
            false
        } else if batch.is_empty() {
            session.head_position().await? == head.position
        } else {
            let changes = self.states.take_changes();
            self.in_flight = batch.first_event();
            let appended = session.append(head, &batch, &changes).await;
            appended.map_err(|error| FailedAttempt::of_append(error, &batch))?
        };
        if appended {
            self.head = Some(Head { position: batch.last_position, hash: batch.last_hash, ..head });
            return Ok(true);
        }
        self.forget();
        Ok(false)
    }

    /// Locks the head, catches up with other writers, decides and appends.
    async fn append_locked(
        &mut self,
        session: &S::Session,
        jobs: &mut [Box<dyn Job>],
    ) -> Result<(), FailedAttempt> {
        let known = self.head.map_or(BEYOND_THE_LOG, |head| head.position);
        let (head, events) = session.begin_and_read(known, MAX_CATCH_UP).await?;
        self.catch_up(head, &events)?;

        let mut batch = AppendBatch::after(head.position, head.hash, self.name.clone());
        let claims: Vec<ClaimId> = jobs.iter().filter_map(|job| job.claim().cloned()).collect();
        if !claims.is_empty() {
            batch.claims.recorded.extend(session.find_claims(&claims).await?);
        }
        self.decide(session, jobs, &mut batch, None).await?;
        if batch.is_empty() && batch.claims.changes.is_empty() {
            session.roll_back().await?;
            return Ok(());
        }
        session.write_claims(&batch.claims.changes).await?;
        if batch.is_empty() {
            // The batch has no facts, only recorded answers. If this commit is lost, only they are lost.
            session.commit().await?;
            return Ok(());
        }
        let changes = self.states.take_changes();
        self.in_flight = batch.first_event();
        let appended = session.append_and_commit(head, &batch, &changes).await;
        let appended = appended.map_err(|error| FailedAttempt::of_append(error, &batch))?;
        assert!(appended, "the head moved under its lock");
        self.head = Some(Head { position: batch.last_position, hash: batch.last_hash, ..head });
        Ok(())
    }

    /// Brings the cached states from the head last seen to the locked `head`. `events` are the first events after the
    /// head last seen, at most [`MAX_CATCH_UP`].
    fn catch_up(&mut self, head: Head, events: &[Fact]) -> Result<(), Failure> {
        let known = self.head.replace(head).map(|known| known.position);
        if known == Some(head.position) {
            self.uncontended_batches = self.uncontended_batches.saturating_add(1);
            return Ok(());
        }
        self.uncontended_batches = 0;
        let complete = known.is_some_and(|known| i64::try_from(events.len()) == Ok(head.position - known));
        if !complete {
            self.states.clear();
            return Ok(());
        }
        for fact in events {
            self.states.catch_up(fact).map_err(|broken| Failure::CatchUp(broken.to_string()))?;
        }
        Ok(())
    }

    /// Decides `jobs` in order and loads the states that they lack; `false` when a load finds the head elsewhere than
    /// at `expected`.
    async fn decide(
        &mut self,
        session: &S::Session,
        jobs: &mut [Box<dyn Job>],
        batch: &mut AppendBatch,
        expected: Option<i64>,
    ) -> Result<bool, Failure> {
        let mut loads = 0;
        for at in 0..jobs.len() {
            while let DecideResult::Missing(missing) = self.decide_one(jobs, at, batch)? {
                loads += 1;
                if loads > MAX_LOADS {
                    return Err(Failure::TooManyLoads);
                }
                // One load also serves the jobs behind this one.
                let rest = jobs[at + 1..].iter().filter_map(|job| missing_state(&**job, &self.states));
                let keys: HashSet<StateKey> = rest.map(|missing| missing.0).chain([missing.0]).collect();
                let keys: Vec<StateKey> = keys.into_iter().collect();
                let (position, found) = session.load(&keys).await?;
                if expected.is_some_and(|expected| expected != position) {
                    return Ok(false);
                }
                for (key, state) in keys.into_iter().zip(found) {
                    self.states.load(key, state);
                }
            }
        }
        Ok(true)
    }

    /// Decides the job at `at`. A panic of the decision fails the attempt: states and batch may be half changed.
    fn decide_one(
        &mut self,
        jobs: &mut [Box<dyn Job>],
        at: usize,
        batch: &mut AppendBatch,
    ) -> Result<DecideResult, Failure> {
        let decided = catch_unwind(AssertUnwindSafe(|| jobs[at].decide(&mut self.states, batch)));
        decided.map_err(|panic| {
            let message = panic_message(&*panic);
            tracing::error!(
                event = "appender.decision_panicked",
                message,
                "the decision of a command panicked; the command fails alone"
            );
            Failure::Panicked { job: at, message }
        })
    }
}

/// The first state that the decision of `job` needs and `states` lacks; `None` if the decision panics, which it will do
/// again in its turn.
fn missing_state(job: &dyn Job, states: &StateCache) -> Option<Missing> {
    catch_unwind(AssertUnwindSafe(|| job.missing_state(states))).ok().flatten()
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
