//! A term: the states of a partition in the memory of its leader, the batch that commits, the one that is decided on top
//! of it, and the states that are stored behind.
//!
//! Invariant: `ledger.state` has the states as of its checkpoint, and every state that changed since is in memory. So a
//! state that is not in memory is as it is stored.

mod take_over;

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::batch::AppendBatch;
use super::cache_bound::{CacheBound, loaded_together};
use super::failure::{FailedAttempt, Failure};
use super::job::{DecideResult, Job};
use super::store::{ATTEMPT_TIMEOUT, Head, LogSession, LogStore, StoreError, StoreResult};
use super::{Error, MAX_BATCH};
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::state::{Missing, StateCache, StateKey};

/// The time between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(200);

/// The same after a checkpoint that more than [`MANY_EVENTS`] waited for, unless commands would soon wait for one: so fewer
/// states are written of calls that have ended.
const CHECKPOINT_INTERVAL_UNDER_LOAD: Duration = Duration::from_secs(1);

/// It is small in tests, so that the simulation reaches it.
const MANY_EVENTS: i64 = if cfg!(test) { 4 } else { 1_000 };

/// How long a batch that nobody waits for is not committed: it holds the openings of calls that were sent to their
/// providers. An answer that comes sooner is committed with the opening, and many openings are committed together.
pub(super) const EARLY_WAIT: Duration = Duration::from_millis(2);

/// The number of commands above which a batch does not wait.
const MAX_WAITING: usize = MAX_BATCH / 2;

/// The most events behind the checkpoint. Beyond them, commands wait: a new leader folds these events before it serves.
/// It is small in tests, so that the simulation reaches it.
pub(super) const MAX_TAIL: i64 = if cfg!(test) { 20 } else { 100_000 };

/// The most loads of missing states for the jobs that are decided together. It is small in tests.
pub(super) const MAX_LOADS: usize = if cfg!(test) { 64 } else { 4_096 };

type Jobs = Vec<Box<dyn Job>>;

type Reply<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Jobs that are decided together, and their batch.
struct Group {
    /// The head that the batch follows.
    expected: Head,
    batch: AppendBatch,
    jobs: Vec<Box<dyn Job>>,
    /// Whether somebody waits for it.
    is_awaited: bool,
    /// When it is committed at the latest, if it has jobs.
    due: Option<Instant>,
}

/// A group whose batch is being committed.
struct Committing {
    jobs: Vec<Box<dyn Job>>,
    /// The position of its last event.
    end: i64,
    started: Instant,
    /// The claims that it uses, as they are after it.
    claims: HashMap<ClaimId, Option<StoredClaim>>,
    reply: Reply<Result<(), FailedAttempt>>,
}

/// What a commit was, for the metrics.
pub(super) struct Committed {
    /// The number of commands in its batch.
    pub(super) commands: usize,
    /// The number of events.
    pub(super) events: u64,
    /// The time from its start to its end.
    pub(super) duration: Duration,
}

/// Changes of states that are taken, to be stored once the events up to `position` are durable.
struct Storing {
    position: i64,
    changes: Vec<(StateKey, Option<String>)>,
    reply: Option<Reply<StoreResult<bool>>>,
}

/// What happened in a term.
pub(super) enum Event {
    /// The commit under way has ended.
    Committed(Result<(), FailedAttempt>),
    /// A checkpoint has ended; `false` if another leader has taken over.
    Stored(bool),
    /// A batch that nobody waits for is to be committed.
    Due,
}

/// A term of a leader.
pub(super) struct Term<S: LogStore> {
    name: String,
    /// Appends.
    session: Arc<S::Session>,
    /// Loads and stores states, so that neither waits for an append.
    side: Arc<S::Session>,
    states: StateCache,
    bound: CacheBound,
    /// The head after everything that is decided. Its hash is that of the batch sealed last.
    decided: Head,
    /// The position of the last durable event.
    durable: i64,
    next: Group,
    committing: Option<Committing>,
    /// The position of the checkpoint.
    stored: i64,
    storing: Option<Storing>,
    next_checkpoint: Instant,
    /// Ends at the next checkpoint, as soon as one is waited for.
    checkpoint_timer: Pin<Box<Sleep>>,
}

impl<S: LogStore> Term<S> {
    /// The position of the last durable event.
    pub(super) const fn durable(&self) -> i64 {
        self.durable
    }

    pub(super) fn epoch(&self) -> i64 {
        self.decided.epoch
    }

    /// Whether a connection is lost and nothing is being committed over it.
    pub(super) fn is_lost(&self) -> bool {
        self.committing.is_none() && (self.session.is_closed() || self.side.is_closed())
    }

    /// Whether jobs wait for an answer.
    pub(super) fn is_busy(&self) -> bool {
        self.committing.is_some() || !self.next.jobs.is_empty()
    }

    /// Whether a batch can be committed now.
    pub(super) fn may_commit(&self) -> bool {
        self.committing.is_none() && self.next.is_due()
    }

    /// Whether there is a batch that nobody waits for.
    pub(super) fn is_waiting(&self) -> bool {
        !self.next.jobs.is_empty() && !self.next.is_awaited
    }

    /// The next batch is to be committed as soon as possible.
    pub(super) fn hurry(&mut self) {
        self.next.is_awaited = true;
    }

    /// Whether events follow the checkpoint. They may have changed no state, or none that is left.
    const fn has_tail(&self) -> bool {
        self.checkpoint_lag() > 0
    }

    /// The number of events behind the checkpoint, those that are decided and not committed among them.
    pub(super) const fn checkpoint_lag(&self) -> i64 {
        self.decided.position - self.stored
    }

    /// Whether commands wait for a checkpoint.
    fn is_tail_full(&self) -> bool {
        self.checkpoint_lag() > MAX_TAIL
    }

    /// The number of jobs that the next batch still takes.
    pub(super) fn room(&self) -> usize {
        if self.is_tail_full() || self.next.batch.is_full() {
            return 0;
        }
        MAX_BATCH - self.next.jobs.len().min(MAX_BATCH)
    }

    /// Takes all of `jobs`, decides them in order, on top of everything decided before, and loads the states that they
    /// lack. Returns those that are left when the next batch is full or has made too many loads, undecided. After a failure
    /// all jobs of the next batch are undecided, and these are among them.
    pub(super) async fn decide(
        &mut self,
        jobs: &mut Vec<Box<dyn Job>>,
    ) -> Result<Vec<Box<dyn Job>>, Failure> {
        let first = self.next.jobs.len();
        self.next.jobs.append(jobs);
        self.find_claims(first).await?;
        let (mut at, mut loads) = (first, 0);
        // A batch without commands is not full, so at least one is decided.
        'jobs: while at < self.next.jobs.len() && !self.next.batch.is_full() {
            // Those of the job before are not needed any more.
            self.bound.apply(&mut self.states);
            while let DecideResult::Missing(missing) = self.decide_one(at)? {
                if loads == MAX_LOADS {
                    if at == 0 {
                        return Err(Failure::TooManyLoads);
                    }
                    break 'jobs;
                }
                loads += 1;
                // One load also serves the jobs behind this one.
                let rest =
                    self.next.jobs[at + 1..].iter().filter_map(|job| missing_states(&**job, &self.states));
                let keys = loaded_together([missing].into_iter().chain(rest).flat_map(|missing| missing.0));
                let side = Arc::clone(&self.side);
                let found = beside(&mut self.storing, side.load(&keys)).await?;
                for (key, state) in keys.into_iter().zip(found) {
                    self.states.load(key, state);
                }
            }
            at += 1;
        }
        let rest = self.next.jobs.split_off(at);
        self.decided.position = self.next.batch.last_position;
        self.next.is_awaited |= self.next.jobs[first..].iter().any(|job| job.is_awaited());
        if self.next.due.is_none() && !self.next.jobs.is_empty() {
            self.next.due = Some(Instant::now() + EARLY_WAIT);
        }
        Ok(rest)
    }

    /// Reads the claims of the jobs from `first` on. Those that the batch under way uses are as they are after it.
    async fn find_claims(&mut self, first: usize) -> Result<(), Failure> {
        let known = &mut self.next.batch.claims.known;
        // Several jobs may use one claim.
        let mut wanted = HashSet::new();
        for id in self.next.jobs[first..].iter().filter_map(|job| job.claim()) {
            if known.contains_key(id) {
                continue;
            }
            let committing = self.committing.as_ref().and_then(|committing| committing.claims.get(id));
            match committing {
                Some(claim) => drop(known.insert(id.clone(), claim.clone())),
                None => {
                    wanted.insert(id.clone());
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let wanted: Vec<ClaimId> = wanted.into_iter().collect();
        let side = Arc::clone(&self.side);
        let found = beside(&mut self.storing, side.find_claims(&wanted)).await?;
        let mut found: HashMap<_, _> = found.into_iter().collect();
        for id in wanted {
            let claim = found.remove(&id);
            self.next.batch.claims.known.insert(id, claim);
        }
        Ok(())
    }

    /// Decides the job at `at`. A panic of the decision fails the batch: states and batch may be half changed.
    fn decide_one(&mut self, at: usize) -> Result<DecideResult, Failure> {
        let Group { jobs, batch, .. } = &mut self.next;
        let decided = catch_unwind(AssertUnwindSafe(|| jobs[at].decide(&mut self.states, batch)));
        decided.map_err(|panic| {
            let message = panic_message(&*panic);
            tracing::error!(
                event = "appender.decision_panicked",
                panic = message,
                "the decision of a command panicked; the command fails alone"
            );
            Failure::Panicked { job: at, message }
        })
    }

    /// Starts the commit of the next batch, if none is under way. Jobs that changed nothing are answered at once, if
    /// `may_answer`: everything that they saw is durable.
    pub(super) fn start_commit(&mut self, newest: &watch::Sender<i64>, may_answer: impl FnOnce() -> bool) {
        if !self.may_commit() {
            return;
        }
        self.next.batch.seal();
        self.decided.hash = self.next.batch.last_hash;
        let next = Group::after(self.decided, &self.name);
        let Group { expected, mut batch, jobs, .. } = std::mem::replace(&mut self.next, next);
        if batch.is_empty() {
            if may_answer() {
                self.answer(jobs, self.durable, newest);
            } else {
                for job in jobs {
                    job.end(Error::Moved);
                }
            }
            return;
        }
        let (end, claims) = (batch.last_position, std::mem::take(&mut batch.claims.known));
        let (session, batch) = (Arc::clone(&self.session), Arc::new(batch));
        let reply = async move {
            let appended = session.append(expected, Arc::clone(&batch));
            match tokio::time::timeout(ATTEMPT_TIMEOUT, appended).await {
                Ok(Ok(true)) => Ok(()),
                Ok(Ok(false)) => Err(Failure::Fenced.into()),
                Ok(Err(error)) => Err(FailedAttempt::of_append(error, &batch)),
                Err(_) => Err(FailedAttempt { failure: Failure::Timeout, in_doubt: batch.first_event() }),
            }
        };
        let started = Instant::now();
        self.committing = Some(Committing { jobs, end, started, claims, reply: Box::pin(reply) });
    }

    /// Takes the changed states if a checkpoint is due, and stores them once their events are durable.
    pub(super) fn start_storing(&mut self) {
        if self.storing.is_none() && self.has_tail() && Instant::now() >= self.next_checkpoint {
            let changes = self.states.take_changes();
            self.storing = Some(Storing { position: self.decided.position, changes, reply: None });
        }
        let Some(storing) = &mut self.storing else { return };
        if storing.reply.is_none() && storing.position <= self.durable {
            let (side, epoch, position) = (Arc::clone(&self.side), self.decided.epoch, storing.position);
            let changes = std::mem::take(&mut storing.changes);
            let reply = async move {
                let stored =
                    tokio::time::timeout(ATTEMPT_TIMEOUT, side.store_states(epoch, position, &changes));
                stored.await.unwrap_or_else(|_| Err(StoreError::Other("Postgres does not answer".to_owned())))
            };
            storing.reply = Some(Box::pin(reply));
        }
    }

    /// Waits until the commit or the checkpoint under way ends, or one of them is due.
    pub(super) async fn next_event(&mut self) -> Event {
        loop {
            let due = self.next_checkpoint;
            let waits = self.storing.is_none() && self.has_tail();
            let waiting = self.next.due.filter(|_| self.committing.is_none() && self.is_waiting());
            // Setting a timer takes a lock, so it stays set from wait to wait.
            if waits && self.checkpoint_timer.deadline() != due {
                self.checkpoint_timer.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                result = reply_of(self.committing.as_mut().map(|committing| &mut committing.reply)) => {
                    return Event::Committed(result);
                }
                result = reply_of(self.storing.as_mut().and_then(|storing| storing.reply.as_mut())) => {
                    return Event::Stored(self.stored(result));
                }
                () = until(waiting), if waiting.is_some() => return Event::Due,
                () = self.checkpoint_timer.as_mut(), if waits => self.start_storing(),
            }
        }
    }

    /// The end of the commit under way, if there is one.
    pub(super) async fn commit_under_way(&mut self) -> Option<Result<(), FailedAttempt>> {
        match &mut self.committing {
            Some(committing) => Some(committing.reply.as_mut().await),
            None => None,
        }
    }

    /// The batch that committed is durable: announces its end and answers its jobs.
    pub(super) fn confirm(&mut self, newest: &watch::Sender<i64>) -> Option<Committed> {
        let Committing { jobs, end, started, .. } = self.committing.take()?;
        let events = u64::try_from(end - self.durable).unwrap_or_default();
        let committed = Committed { commands: jobs.len(), events, duration: started.elapsed() };
        self.answer(jobs, end, newest);
        Some(committed)
    }

    fn answer(&mut self, jobs: Vec<Box<dyn Job>>, durable: i64, newest: &watch::Sender<i64>) {
        self.durable = durable;
        announce(newest, durable);
        for job in jobs {
            job.confirm();
        }
        self.states.forget_unknown_keys();
        // Reads and refusals add states too, and make no checkpoint.
        self.bound.apply(&mut self.states);
    }

    /// Takes note of the end of a checkpoint; `false` if another leader has taken over.
    fn stored(&mut self, result: StoreResult<bool>) -> bool {
        let Some(Storing { position, .. }) = self.storing.take() else { return true };
        let is_busy = (MANY_EVENTS..MAX_TAIL / 2).contains(&self.checkpoint_lag());
        let interval = if is_busy { CHECKPOINT_INTERVAL_UNDER_LOAD } else { CHECKPOINT_INTERVAL };
        self.next_checkpoint = Instant::now() + interval;
        match result {
            Ok(true) => {
                self.stored = position;
                self.states.confirm_stored();
                self.bound = CacheBound::default();
                self.bound.apply(&mut self.states);
                true
            }
            Ok(false) => false,
            Err(error) => {
                tracing::warn!(event = "appender.checkpoint_failed", %error, "the changed states are not stored yet");
                self.states.put_changes_back();
                // Perhaps there is too much for one statement. The next term stores the tail in pages.
                !self.is_tail_full()
            }
        }
    }

    /// Stores all changed states, if the store takes them: the next leader then has nothing to fold.
    pub(super) async fn store_all(&mut self) {
        let store = async {
            if let Some(reply) = self.storing.as_mut().and_then(|storing| storing.reply.as_mut()) {
                let result = reply.await;
                if !self.stored(result) {
                    return;
                }
            }
            if self.storing.take().is_some() {
                self.states.put_changes_back();
            }
            if self.has_tail() {
                let changes = self.states.take_changes();
                let stored = self.side.store_states(self.decided.epoch, self.durable, &changes).await;
                if let Err(error) = stored {
                    tracing::warn!(event = "appender.checkpoint_failed", %error, "the next leader folds the tail");
                }
            }
        };
        let _ = tokio::time::timeout(ATTEMPT_TIMEOUT, store).await;
    }

    /// The jobs of the batch that was committing, the position of its end, and the jobs of the next one.
    pub(super) fn take_jobs(&mut self) -> (Jobs, i64, Jobs) {
        let next = std::mem::take(&mut self.next.jobs);
        match self.committing.take() {
            Some(Committing { jobs, end, .. }) => (jobs, end, next),
            None => (Vec::new(), self.durable, next),
        }
    }
}

impl Group {
    /// An empty group after `head`.
    fn after(head: Head, writer: &str) -> Self {
        let batch = AppendBatch::after(head.position, head.hash, writer.to_owned());
        Self { expected: head, batch, jobs: Vec::new(), is_awaited: false, due: None }
    }

    /// Whether it is to be committed.
    fn is_due(&self) -> bool {
        let is_due = || self.due.is_some_and(|due| due <= Instant::now());
        !self.jobs.is_empty() && (self.is_awaited || self.jobs.len() >= MAX_WAITING || is_due())
    }
}

/// A call on the connection that also stores states. The reply to a checkpoint under way is received meanwhile: replies
/// come in the order of the calls, and one that nobody receives holds up those behind it.
async fn beside<T>(
    storing: &mut Option<Storing>,
    call: impl Future<Output = StoreResult<T>>,
) -> Result<T, Failure> {
    let call = bounded(call);
    tokio::pin!(call);
    let Some(reply) = storing.as_mut().and_then(|storing| storing.reply.as_mut()) else {
        return call.await;
    };
    tokio::select! {
        biased;
        found = &mut call => return found,
        stored = reply.as_mut() => *reply = Box::pin(std::future::ready(stored)),
    }
    call.await
}

/// A call to the store, with a bound on its time.
async fn bounded<T>(call: impl Future<Output = StoreResult<T>>) -> Result<T, Failure> {
    let result = tokio::time::timeout(ATTEMPT_TIMEOUT, call).await;
    Ok(result.map_err(|_| Failure::Timeout)??)
}

/// Announces the position of the newest durable event.
pub(super) fn announce(newest: &watch::Sender<i64>, durable: i64) {
    newest.send_if_modified(|newest| std::mem::replace(newest, durable) != durable);
}

/// Waits for a reply; for ever if none is awaited.
async fn reply_of<T>(reply: Option<&mut Reply<T>>) -> T {
    match reply {
        Some(reply) => reply.await,
        None => std::future::pending().await,
    }
}

/// Waits until this time; for ever if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The first states that the decision of `job` needs and `states` lacks; `None` if the decision panics, which it will do
/// again in its turn.
fn missing_states(job: &dyn Job, states: &StateCache) -> Option<Missing> {
    catch_unwind(AssertUnwindSafe(|| job.missing_states(states))).ok().flatten()
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
