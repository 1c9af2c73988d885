//! The writer: one connection, the head as it was last seen, and the states that are true there.
//!
//! While no other process writes, a batch is decided on the states at the last known head and appended by one
//! statement, which writes only if the head is still there. Once another writer has been seen, the head is locked
//! first, the other's events are followed, and only then is decided.

use std::collections::HashSet;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_util::sync::CancellationToken;

use super::Config;
use super::batch::{Batch, Job, Step};
use super::session::{Head, IS_RECORDED, NEXT_EPOCH, Session, read_fact, read_head};
use crate::connect::redacted;
use crate::states;
use farthing_core::idempotency::ClaimId;
use farthing_core::state::{StateCache, StateKey};

/// Events of other writers that are followed one by one; beyond that it is cheaper to load states anew.
const MAX_FOLLOWED: i64 = 2_000;

/// Known states before all are forgotten.
const MAX_KNOWN: usize = 200_000;

/// Loads of missing states in one batch.
const MAX_LOADS: usize = 4_096;

/// Batches with the head unmoved after which this process takes itself for the only writer again.
const CALM: u32 = 16;

/// Pauses between attempts to learn the fate of a commit.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How long a batch, or the question after its fate, may take before Postgres is taken for gone.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error(transparent)]
    States(#[from] states::Error),
    #[error("the log cannot be followed: {0}")]
    Follow(String),
    #[error("a decision asks for states without end")]
    Endless,
    #[error("Postgres does not answer")]
    Silent,
}

impl Failure {
    /// Is one command's data to blame, so that the others may go on without it?
    fn blames_data(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        error.code().is_some_and(|code: &SqlState| {
            ["22", "23", "42", "54"].iter().any(|class| code.code().starts_with(class))
        })
    }
}

/// A failed attempt, and what it leaves open.
struct Failed {
    failure: Failure,
    /// A fact's key that tells whether the batch was committed; none when it surely was not.
    in_doubt: Option<String>,
}

impl<F: Into<Failure>> From<F> for Failed {
    fn from(failure: F) -> Self {
        Self { failure: failure.into(), in_doubt: None }
    }
}

/// Owns the writing connection and everything that is true at its head.
#[derive(Debug)]
pub(super) struct Writer {
    config: Config,
    metadata: String,
    told: watch::Sender<i64>,
    session: Option<Session>,
    head: Option<Head>,
    states: StateCache,
    /// Batches since another writer was seen.
    calm: u32,
    /// A fact's key of the batch that Postgres has been asked to append.
    under_way: Option<String>,
}

impl Writer {
    pub(super) fn new(config: Config, told: watch::Sender<i64>) -> Self {
        let metadata = serde_json::json!({ "by": config.writer }).to_string();
        Self {
            config,
            metadata,
            told,
            session: None,
            head: None,
            states: StateCache::default(),
            calm: 0,
            under_way: None,
        }
    }

    /// Appends what `jobs` decide to and answers each of them. Jobs that arrive while a commit's fate is being
    /// found out are refused at once.
    pub(super) async fn append(
        &mut self,
        mut jobs: Vec<Box<dyn Job>>,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        stop: &CancellationToken,
    ) {
        let attempted = tokio::time::timeout(ATTEMPT_TIMEOUT, self.attempt(&mut jobs)).await;
        let Failed { failure, in_doubt } = match attempted {
            Ok(Ok(())) => return self.confirm(jobs),
            Ok(Err(failed)) => failed,
            Err(_) => Failed { failure: Failure::Silent, in_doubt: self.under_way.take() },
        };
        tracing::warn!(%failure, in_doubt = in_doubt.is_some(), "an append failed");
        // Whatever the connection was in the middle of ends with it.
        self.session = None;
        self.forget();
        let committed = match in_doubt {
            Some(key) => self.resolve(&key, queue, stop).await,
            None => Some(false),
        };
        match committed {
            Some(true) => return self.confirm(jobs),
            Some(false) => {}
            // Their waiters learn that there is no answer, which is the truth.
            None => return,
        }
        if failure.blames_data() && jobs.len() > 1 {
            // Whoever is to blame fails alone.
            for job in jobs {
                Box::pin(self.append(vec![job], queue, stop)).await;
            }
            return;
        }
        let why = failure.to_string();
        for job in jobs {
            job.fail(&why);
        }
    }

    fn confirm(&mut self, jobs: Vec<Box<dyn Job>>) {
        if let Some(head) = self.head {
            self.told.send_if_modified(|told| std::mem::replace(told, head.position) != head.position);
        }
        for job in jobs {
            job.confirm();
        }
        if self.states.len() > MAX_KNOWN {
            self.states.clear();
        }
    }

    fn forget(&mut self) {
        self.head = None;
        self.calm = 0;
        self.states.clear();
    }

    async fn attempt(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failed> {
        // An earlier batch's key says nothing of this one, not even while the connection is being opened.
        self.under_way = None;
        let session = match self.session.take() {
            Some(session) if !session.client.is_closed() => session,
            _ => {
                self.forget();
                Session::open(&self.config).await?
            }
        };
        // What goes beside the log needs a transaction around it, and claims are read under the head's lock.
        let beside = jobs.iter().any(|job| job.writes_beside());
        let alone = if self.calm >= CALM && !beside { self.head } else { None };
        let mut done = false;
        let mut result = Ok(());
        if let Some(head) = alone {
            match self.append_alone(&session, head, jobs).await {
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

    /// Decides at the head last seen, and appends only if it is still there; `false` when it is not.
    async fn append_alone(
        &mut self,
        session: &Session,
        head: Head,
        jobs: &mut [Box<dyn Job>],
    ) -> Result<bool, Failed> {
        let mut batch = Batch::after(head.position, head.hash, self.metadata.clone());
        let there = self.decide(session, jobs, &mut batch, Some(head.position)).await?;
        let appended = if !there {
            false
        } else if batch.is_empty() {
            let position: i64 = session.client.query_one(&session.peek_head, &[]).await?.get(0);
            position == head.position
        } else if batch.personal.is_empty() {
            let changes = self.states.take_changes();
            self.under_way = batch.keys.first().cloned();
            let appended = session.append(head, &batch, &changes).await;
            appended.map_err(|error| in_doubt(error, &batch))?
        } else {
            false // what goes beside the log needs a transaction around it
        };
        if appended {
            self.head = Some(Head { position: batch.last_position, hash: batch.last_hash, ..head });
            return Ok(true);
        }
        self.forget();
        Ok(false)
    }

    /// Locks the head, follows what others appended, decides and appends.
    async fn append_locked(&mut self, session: &Session, jobs: &mut [Box<dyn Job>]) -> Result<(), Failed> {
        let client = &session.client;
        let known = self.head.map_or(i64::MAX, |head| head.position);
        let after_known: [&(dyn ToSql + Sync); 2] = [&known, &MAX_FOLLOWED];
        let ((), head, tail) = tokio::try_join!(
            client.batch_execute("BEGIN"),
            client.query_one(&session.lock_head, &[]),
            client.query(&session.follow, &after_known),
        )?;
        let head = read_head(&head).map_err(Failure::Follow)?;
        self.follow(head, &tail)?;

        let mut batch = Batch::after(head.position, head.hash, self.metadata.clone());
        let claims: Vec<ClaimId> = jobs.iter().filter_map(|job| job.claim().cloned()).collect();
        if !claims.is_empty() {
            batch.claims.recorded.extend(session.claims.find(client, &claims).await?);
        }
        self.decide(session, jobs, &mut batch, None).await?;
        if batch.is_empty() && batch.claims.changes.is_empty() {
            client.batch_execute("ROLLBACK").await?;
            return Ok(());
        }
        for (customer_id, change) in &batch.personal {
            session.change_personal(*customer_id, change).await?;
        }
        session.claims.write(client, &batch.claims.changes).await?;
        if batch.is_empty() {
            // Only answers to commands that come to no facts: a lost commit loses nothing else.
            client.batch_execute("COMMIT").await?;
            return Ok(());
        }
        let changes = self.states.take_changes();
        self.under_way = batch.keys.first().cloned();
        let (appended, committed) =
            tokio::join!(session.append(head, &batch, &changes), client.batch_execute("COMMIT"),);
        let appended = appended.map_err(|error| in_doubt(error, &batch))?;
        committed.map_err(|error| in_doubt(error, &batch))?;
        assert!(appended, "the head moved under its lock");
        self.head = Some(Head { position: batch.last_position, hash: batch.last_hash, ..head });
        Ok(())
    }

    /// Brings the known states from the head last seen to the locked `head`.
    fn follow(&mut self, head: Head, tail: &[Row]) -> Result<(), Failure> {
        let known = self.head.replace(head).map(|known| known.position);
        if known == Some(head.position) {
            self.calm = self.calm.saturating_add(1);
            return Ok(());
        }
        self.calm = 0;
        let whole = known.is_some_and(|known| i64::try_from(tail.len()) == Ok(head.position - known));
        if !whole {
            self.states.clear();
            return Ok(());
        }
        for row in tail {
            let fact = read_fact(row).map_err(Failure::Follow)?;
            self.states.follow(&fact).map_err(|broken| Failure::Follow(broken.to_string()))?;
        }
        Ok(())
    }

    /// Decides `jobs` in order, loading what they lack; `false` when a load shows that the head is not at
    /// `expected` any more.
    async fn decide(
        &mut self,
        session: &Session,
        jobs: &mut [Box<dyn Job>],
        batch: &mut Batch,
        expected: Option<i64>,
    ) -> Result<bool, Failure> {
        let mut loads = 0;
        for at in 0..jobs.len() {
            while let Step::Missing(missing) = jobs[at].decide(&mut self.states, batch) {
                loads += 1;
                if loads > MAX_LOADS {
                    return Err(Failure::Endless);
                }
                // One load serves all that wait behind this one.
                let rest = jobs[at + 1..].iter().filter_map(|job| job.lacks(&self.states));
                let keys: HashSet<StateKey> = rest.map(|missing| missing.0).chain([missing.0]).collect();
                let keys: Vec<StateKey> = keys.into_iter().collect();
                let (position, found) = states::load_prepared(&session.client, &session.load, &keys).await?;
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

    /// Was the batch with the fact `key` committed? Waits for as long as it takes to know; none when this process is
    /// to stop before.
    async fn resolve(
        &mut self,
        key: &str,
        queue: &mut mpsc::Receiver<Box<dyn Job>>,
        stop: &CancellationToken,
    ) -> Option<bool> {
        let mut pause = Duration::ZERO;
        loop {
            let waited = tokio::time::sleep(pause);
            let asking = async {
                waited.await;
                tokio::time::timeout(ATTEMPT_TIMEOUT, self.is_recorded(key)).await
            };
            tokio::pin!(asking);
            let answer = loop {
                tokio::select! {
                    answer = &mut asking => break answer,
                    () = stop.cancelled() => return None,
                    Some(job) = queue.recv() => job.fail("Postgres is away"),
                }
            };
            match answer {
                Ok(Ok(recorded)) => return Some(recorded),
                Ok(Err(error)) => tracing::warn!(%error, "the fate of a commit is not known yet"),
                Err(_) => tracing::warn!("the fate of a commit is not known yet: Postgres does not answer"),
            }
            pause = (pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
        }
    }

    /// Looks under the head's lock, so that a commit still under way has ended before.
    async fn is_recorded(&mut self, key: &str) -> Result<bool, tokio_postgres::Error> {
        let session = Session::open(&self.config).await?;
        session.client.batch_execute("BEGIN").await?;
        session.client.query_one(&session.lock_head, &[]).await?;
        let recorded: bool = session.client.query_one(IS_RECORDED, &[&key]).await?.get(0);
        if !recorded {
            session.client.batch_execute(NEXT_EPOCH).await?;
        }
        session.client.batch_execute("COMMIT").await?;
        self.session = Some(session);
        Ok(recorded)
    }
}

/// Postgres says itself when it refuses the data, and then nothing was written: a fact of that key may still be in the
/// log, from before. Every other error leaves open whether the batch was committed.
fn in_doubt(error: tokio_postgres::Error, batch: &Batch) -> Failed {
    let failure = Failure::from(error);
    let in_doubt = if failure.blames_data() { None } else { batch.keys.first().cloned() };
    Failed { failure, in_doubt }
}
