//! The leader of a partition: decides commands on its states in memory, and commits their facts behind. The next batch is
//! decided while one commits.
//!
//! Invariant: the log moves from the head that the leader has seen to the end of its batch, and by no other writer. The
//! epoch in each append sees to that: when another gateway takes over, it raises the epoch, and nothing of this leader
//! is carried out any more.

use std::collections::VecDeque;
use std::time::Duration;

use farthing_telemetry::Gauge;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::batch::EventId;
use super::failure::{Blame, FailedAttempt, Failure};
use super::job::Job;
use super::store::{ATTEMPT_TIMEOUT, LogSession as _, LogStore, StoreError, StoreResult};
use super::term::{Committed, Event, Term, announce};
use super::{Error, Lease, MAX_BATCH};
use crate::backoff::Backoff;
use crate::metrics::LedgerMetrics;

/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How often in a row a batch that the store undid for the sake of others is tried again.
pub(super) const MAX_CONFLICTS: u32 = 3;

/// Leads a partition while this gateway holds its lease.
pub(super) struct Leader<'a, S: LogStore> {
    pub(super) store: &'a S,
    /// The writer's name in the record batches.
    pub(super) name: &'a str,
    pub(super) metrics: &'a LedgerMetrics,
    /// The position of the newest durable event.
    pub(super) newest: &'a watch::Sender<i64>,
    /// How often in a row a term could not begin, an append failed, or its outcome could not be looked up.
    pub(super) failures: &'a watch::Sender<u32>,
    /// Those since the last commit that do not end when a term begins.
    pub(super) failed_appends: u32,
    pub(super) jobs: &'a mut mpsc::Receiver<Box<dyn Job>>,
    /// Notified when somebody waits for a batch that nobody waited for.
    pub(super) hurry: &'a Notify,
    /// The events behind the checkpoint.
    pub(super) checkpoint_lag: &'a Gauge,
    pub(super) lease: &'a mut watch::Receiver<Lease>,
    pub(super) stop: &'a CancellationToken,
    /// Jobs to decide before any other, each group as a batch of its own: those of failed batches, and those
    /// that were left when a batch was full.
    pub(super) retries: VecDeque<Vec<Box<dyn Job>>>,
    /// How often in a row an append was undone for the sake of others.
    pub(super) conflicts: u32,
}

/// The end of a term.
enum Ended {
    /// The lease is over or the process stops; everything that was decided is answered.
    Over,
    /// Something failed.
    Failed(FailedTerm),
}

/// The jobs of a term that failed, none of them answered.
struct FailedTerm {
    /// The batch that was committing, and its failure.
    committing: Option<(Vec<Box<dyn Job>>, FailedAttempt)>,
    /// The position of its last event.
    end: i64,
    /// The number of its events.
    events: u64,
    epoch: i64,
    /// The jobs decided on top of it, and the failure of their decision, if it failed.
    next: Vec<Box<dyn Job>>,
    next_failure: Option<Failure>,
}

impl<S: LogStore> Leader<'_, S> {
    /// Leads until the lease is over or the process stops.
    pub(super) async fn lead(mut self) {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            self.lease.mark_unchanged();
            let began = tokio::time::timeout(ATTEMPT_TIMEOUT, Term::begin(self.store, self.name));
            let failure = match began.await {
                Ok(Ok(Some(term))) => {
                    self.metrics.terms_begun.inc();
                    backoff = Backoff::new(PAUSES.0, PAUSES.1);
                    self.failures.send_replace(self.failed_appends);
                    match self.serve(term).await {
                        Ended::Over => return,
                        Ended::Failed(failed) => self.settle(failed).await,
                    }
                    if self.stop.is_cancelled() && self.retries.is_empty() && self.jobs.is_empty() {
                        return;
                    }
                    continue;
                }
                Ok(Ok(None)) => {
                    self.end_retries(&Error::Moved);
                    return self.refuse_until_lease_changes().await;
                }
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Timeout,
            };
            self.metrics.terms_not_begun.inc();
            self.failures.send_modify(|failures| *failures = failures.saturating_add(1));
            tracing::warn!(event = "appender.take_over_failed", %failure, "the partition cannot be led yet");
            self.end_retries(&Error::Unavailable(failure.to_string()));
            let pause = tokio::time::sleep(backoff.next_delay());
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    biased;
                    () = &mut pause => break,
                    () = self.stop.cancelled() => return,
                    () = lease_over(self.lease) => return,
                    Some(job) = self.jobs.recv() => job.fail("Postgres is away"),
                }
            }
        }
    }

    /// Another gateway has the lease. Returns when this one learns of it, which may have been since it asked.
    async fn refuse_until_lease_changes(&mut self) {
        // A term that fails may have learned of it, and this would not be told again.
        if *self.lease.borrow() == Lease::None {
            return;
        }
        loop {
            tokio::select! {
                biased;
                _ = self.lease.changed() => return,
                () = self.stop.cancelled() => return,
                Some(job) = self.jobs.recv() => job.end(Error::Moved),
            }
        }
    }

    fn end_retries(&mut self, error: &Error) {
        for job in self.retries.drain(..).flatten() {
            job.end(error.clone());
        }
    }

    /// Decides, commits and answers until the term ends.
    async fn serve(&mut self, mut term: Term<S>) -> Ended {
        let mut received = Vec::with_capacity(MAX_BATCH);
        let (mut lease_is_over, mut stopping) = (false, false);
        // One wait each for the whole term: the timer of the lease is set once for each renewal.
        let mut lease = self.lease.clone();
        let (lease_end, stopped) = (lease_over(&mut lease), self.stop.cancelled());
        tokio::pin!(lease_end, stopped);
        loop {
            if term.is_lost() {
                return self.fail(term, None).await;
            }
            if term.may_commit() && self.retries.is_empty() && !lease_is_over {
                // What is ready to run goes first: the commands that it submits are in the same batch. An idle process
                // loses no time by it, and a busy one commits less often.
                tokio::task::yield_now().await;
                while received.len() < term.room()
                    && let Ok(job) = self.jobs.try_recv()
                {
                    received.push(job);
                }
                if let Err(failure) = self.decide(&mut term, &mut received).await {
                    return self.fail(term, Some(failure)).await;
                }
            }
            if stopping || lease_is_over {
                term.hurry();
            }
            term.start_commit(self.newest, || is_valid(&self.lease.borrow()));
            // A group that changes nothing is answered at once, and the next one follows.
            while !term.is_busy()
                && let Some(mut group) = self.retries.pop_front()
            {
                if let Err(failure) = self.decide(&mut term, &mut group).await {
                    return self.fail(term, Some(failure)).await;
                }
                term.hurry();
                term.start_commit(self.newest, || is_valid(&self.lease.borrow()));
            }
            term.start_storing();
            self.checkpoint_lag.set(term.checkpoint_lag());
            if stopping && self.jobs.is_empty() && self.retries.is_empty() {
                lease_is_over = true;
            }
            if lease_is_over && !term.is_busy() {
                self.end_retries(&Error::Moved);
                term.store_all().await;
                return Ended::Over;
            }
            let room = if lease_is_over || !self.retries.is_empty() { 0 } else { term.room() };
            tokio::select! {
                biased;
                event = term.next_event() => match event {
                    Event::Committed(Ok(())) => self.confirm(&mut term),
                    Event::Committed(Err(failed)) => return Ended::Failed(take(term, Some(failed), None)),
                    Event::Stored(is_stored) => if !is_stored {
                        return self.fail(term, None).await;
                    },
                    Event::Due => {}
                },
                () = self.hurry.notified(), if term.is_waiting() => term.hurry(),
                count = self.jobs.recv_many(&mut received, room), if room > 0 => {
                    if count == 0 {
                        stopping = true;
                        continue;
                    }
                    if term.is_lost() {
                        self.retries.push_back(std::mem::take(&mut received));
                    } else if let Err(failure) = self.decide(&mut term, &mut received).await {
                        return self.fail(term, Some(failure)).await;
                    }
                }
                () = &mut stopped, if !stopping => stopping = true,
                () = &mut lease_end, if !lease_is_over => lease_is_over = true,
            }
        }
    }

    /// Takes and decides all of `jobs`. Those that are left when the batch is full come first in the next one.
    async fn decide(&mut self, term: &mut Term<S>, jobs: &mut Vec<Box<dyn Job>>) -> Result<(), Failure> {
        self.end_expired(jobs);
        let rest = term.decide(jobs).await?;
        if !rest.is_empty() {
            self.retries.push_front(rest);
        }
        Ok(())
    }

    /// Ends the jobs that have waited for too long; the others stay in their order.
    fn end_expired(&self, jobs: &mut Vec<Box<dyn Job>>) {
        let now = Instant::now();
        for job in jobs.extract_if(.., |job| job.has_expired(now)) {
            self.metrics.shed_expired.inc();
            job.end(Error::Overloaded);
        }
    }

    /// Ends a term whose last decision failed, or whose connections are lost. The batch that commits ends first.
    async fn fail(&mut self, mut term: Term<S>, failure: Option<Failure>) -> Ended {
        let committed = term.commit_under_way().await;
        let failed = match committed {
            None => None,
            Some(Ok(())) => {
                self.confirm(&mut term);
                None
            }
            Some(Err(failed)) => Some(failed),
        };
        Ended::Failed(take(term, failed, failure))
    }

    fn confirm(&mut self, term: &mut Term<S>) {
        if let Some(Committed { commands, events, duration }) = term.confirm(self.newest) {
            self.metrics.batch_commands.observe_size(commands);
            self.metrics.append_duration.observe(duration);
            self.count_append(events);
        }
        self.conflicts = 0;
        self.forget_failed_appends();
    }

    fn count_append(&self, events: u64) {
        self.metrics.appends.inc();
        self.metrics.appended_events.inc_by(events);
    }

    fn forget_failed_appends(&mut self) {
        if self.failed_appends > 0 {
            self.failed_appends = 0;
            self.failures.send_replace(0);
        }
    }

    fn count_failed_append(&mut self) {
        self.failed_appends = self.failed_appends.saturating_add(1);
        self.failures.send_modify(|failures| *failures = failures.saturating_add(1));
    }

    /// Answers the jobs of a failed term, or queues them to be decided again.
    async fn settle(&mut self, failed: FailedTerm) {
        let FailedTerm { committing, end, events, epoch, next, next_failure } = failed;
        let mut groups = Vec::new();
        if let Some((jobs, FailedAttempt { failure, in_doubt })) = committing {
            self.metrics.append_failures.inc();
            tracing::warn!(
                event = "appender.append_failed",
                %failure,
                in_doubt = in_doubt.is_some(),
                "an append failed"
            );
            match in_doubt {
                None => {
                    let blame = self.blame(&failure, failure.blame());
                    groups.extend(blamed(jobs, &failure, blame));
                }
                Some(first) => match self.resolve(&first, epoch).await {
                    Some(true) => {
                        self.forget_failed_appends();
                        self.count_append(events);
                        announce(self.newest, end);
                        for job in jobs {
                            job.confirm();
                        }
                    }
                    Some(false) => {
                        self.count_failed_append();
                        let blame = self.blame(&failure, Blame::Store);
                        groups.extend(blamed(jobs, &failure, blame));
                    }
                    // The outcome is unknown, so the callers get no answer: their channels close.
                    None => {}
                },
            }
        }
        match next_failure {
            None => groups.push(next),
            Some(failure) => {
                tracing::warn!(event = "appender.decision_failed", %failure, "a batch cannot be decided");
                groups.extend(blamed(next, &failure, failure.blame()));
            }
        }
        for group in groups.into_iter().rev().filter(|group| !group.is_empty()) {
            self.retries.push_front(group);
        }
    }

    /// The commands to blame for a batch that was not appended: none after a conflict, so that the batch is tried again as
    /// it is; `otherwise` after other failures, and if there were too many conflicts.
    fn blame(&mut self, failure: &Failure, otherwise: Blame) -> Blame {
        let is_conflict = matches!(failure, Failure::Store(StoreError::Conflict(_)));
        if is_conflict && self.conflicts < MAX_CONFLICTS {
            self.conflicts += 1;
            return Blame::None;
        }
        self.conflicts = 0;
        otherwise
    }

    /// Whether the batch with the event `first` was committed. Retries until Postgres answers, and fails the jobs that
    /// arrive meanwhile. `None` if the process stops first, or gives the partition to another gateway.
    async fn resolve(&mut self, first: &EventId, epoch: i64) -> Option<bool> {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        let mut pause = Duration::ZERO;
        loop {
            let waited = tokio::time::sleep(pause);
            let lookup = async {
                waited.await;
                let looked_up =
                    tokio::time::timeout(ATTEMPT_TIMEOUT, look_up(self.store, first, epoch)).await;
                looked_up.map_err(|_| Failure::Timeout)?.map_err(Failure::Store)
            };
            tokio::pin!(lookup);
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut lookup => break answer,
                    () = self.stop.cancelled() => return None,
                    Some(job) = self.jobs.recv() => job.fail("Postgres is away"),
                }
            };
            let error = match answer {
                Ok(recorded) => return Some(recorded),
                Err(error) => error,
            };
            tracing::warn!(
                event = "appender.commit_unresolved",
                %error,
                "cannot look up yet whether a batch was committed"
            );
            self.count_failed_append();
            if *self.lease.borrow() == Lease::None {
                return None;
            }
            pause = backoff.next_delay();
        }
    }
}

/// Looks the event up under the head's lock, so that a commit under way has ended before.
async fn look_up<S: LogStore>(store: &S, first: &EventId, epoch: i64) -> StoreResult<bool> {
    store.open().await?.resolve(first, epoch).await
}

/// The jobs of a term that ends. Its connections are closed, which ends a statement that still runs on one.
fn take<S: LogStore>(
    mut term: Term<S>,
    committing: Option<FailedAttempt>,
    next_failure: Option<Failure>,
) -> FailedTerm {
    let before = term.durable();
    let (committed, end, next) = term.take_jobs();
    FailedTerm {
        committing: committing.map(|failed| (committed, failed)),
        end,
        events: u64::try_from(end - before).unwrap_or_default(),
        epoch: term.epoch(),
        next,
        next_failure,
    }
}

/// Answers the jobs that a failure is blamed on, and returns the others in groups to be decided again.
fn blamed(mut jobs: Vec<Box<dyn Job>>, failure: &Failure, blame: Blame) -> Vec<Vec<Box<dyn Job>>> {
    match blame {
        Blame::None => vec![jobs],
        Blame::Job(job) => {
            failure.end(jobs.remove(job));
            vec![jobs]
        }
        // Halves are appended until the job to blame is alone; all others succeed.
        Blame::AnyJob if jobs.len() > 1 => {
            let second = jobs.split_off(jobs.len() / 2);
            vec![jobs, second]
        }
        Blame::AnyJob | Blame::Store => {
            for job in jobs {
                failure.end(job);
            }
            Vec::new()
        }
    }
}

/// Whether this gateway may answer from memory alone.
pub(super) fn is_valid(lease: &Lease) -> bool {
    matches!(lease, Lease::Held { until } if Instant::now() < *until)
}

/// Waits until the lease is over.
async fn lease_over(lease: &mut watch::Receiver<Lease>) {
    loop {
        let until = match *lease.borrow_and_update() {
            Lease::Held { until } => until,
            Lease::None => return,
        };
        tokio::select! {
            changed = lease.changed() => if changed.is_err() {
                // Nobody renews the lease any more.
                tokio::time::sleep_until(until).await;
                return;
            },
            () = tokio::time::sleep_until(until) => if !is_valid(&lease.borrow()) {
                return;
            },
        }
    }
}

#[cfg(test)]
mod tests;
