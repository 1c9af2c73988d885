//! The commands of one batch and the facts they were decided to, laid out as the append statement takes them.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use super::Error;
use crate::chain::{self, Hash, Link};
use crate::claims::Changes;
use farthing_core::command::{self, Command, Decision, PersonalChange, Stop};
use farthing_core::event::{Fact, codec};
use farthing_core::idempotency::{ClaimId, Recorded};
use farthing_core::ids::CustomerId;
use farthing_core::state::{Missing, StateCache, Stuck};

/// What a job comes to.
pub(super) enum Step {
    /// Decided, for better or worse; the answer waits for the commit.
    Decided,
    /// A state must be loaded first.
    Missing(Missing),
}

/// A command with someone waiting for its outcome.
pub(super) trait Job: Send {
    /// Decides on `world` and evolves it; what is to be appended goes into `batch`.
    fn decide(&mut self, states: &mut StateCache, batch: &mut Batch) -> Step;

    /// Which state does the decision lack, if any? Changes nothing.
    fn lacks(&self, states: &StateCache) -> Option<Missing>;

    /// Does it write beside the log, so that a transaction is needed around it?
    fn writes_beside(&self) -> bool {
        false
    }

    /// The claim that it asks about before it decides.
    fn claim(&self) -> Option<&ClaimId> {
        None
    }

    /// Gives the answer: what was decided is so.
    fn confirm(self: Box<Self>);

    /// Gives the answer: nothing was appended.
    fn fail(self: Box<Self>, why: &str);
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

pub(super) struct Ticket<C: Command> {
    command: C,
    reply: oneshot::Sender<Result<C::Outcome, Error>>,
    answer: Option<Result<C::Outcome, Error>>,
}

impl<C: Command> Ticket<C> {
    pub(super) fn boxed(command: C, reply: oneshot::Sender<Result<C::Outcome, Error>>) -> Box<dyn Job> {
        Box::new(Self { command, reply, answer: None })
    }
}

impl<C: Command> Job for Ticket<C> {
    fn decide(&mut self, states: &mut StateCache, batch: &mut Batch) -> Step {
        match conclude(&self.command, states, batch) {
            Ok(answer) => {
                self.answer = Some(answer);
                Step::Decided
            }
            Err(missing) => Step::Missing(missing),
        }
    }

    fn lacks(&self, states: &StateCache) -> Option<Missing> {
        lacks(&self.command, states)
    }

    fn confirm(self: Box<Self>) {
        let Self { reply, answer, .. } = *self;
        // Where nobody waits any more the facts stand all the same.
        let _ = answer.map(|answer| reply.send(answer));
    }

    fn fail(self: Box<Self>, why: &str) {
        let _ = self.reply.send(Err(Error::Unavailable(why.to_owned())));
    }
}

/// Decides `command` on `world`, evolves it and puts what is to be appended into `batch`; what to answer once that
/// is durable.
pub(super) fn conclude<C: Command>(
    command: &C,
    states: &mut StateCache,
    batch: &mut Batch,
) -> Result<Result<C::Outcome, Error>, Missing> {
    let Decision { facts, personal, outcome } = match command::decide(command, states) {
        Ok(decision) => decision,
        Err(Stop::Missing(missing)) => return Err(missing),
        Err(Stop::Refused(refusal)) => return Ok(Err(Error::Refused(refusal))),
    };
    match states.evolve(&facts) {
        Ok(()) => {}
        Err(Stuck::Missing(missing)) => return Err(missing),
        Err(Stuck::Broken(broken)) => {
            tracing::error!(%broken, "a decision would break an invariant and is not appended");
            return Ok(Err(Error::Unavailable(broken.to_string())));
        }
    }
    for fact in facts {
        batch.push(&fact);
    }
    batch.personal.extend(personal);
    Ok(Ok(outcome))
}

/// Which state does the decision of `command` lack, if any?
pub(super) fn lacks<C: Command>(command: &C, states: &StateCache) -> Option<Missing> {
    match command::decide(command, states) {
        Err(Stop::Missing(missing)) => Some(missing),
        Ok(_) | Err(Stop::Refused(_)) => None,
    }
}

/// The claims of a batch: what is on record of them, and what the batch changes of that.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) recorded: HashMap<ClaimId, Recorded>,
    pub(super) changes: Changes,
}

/// The facts of a batch, column by column, and what is written beside them.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) metadata: String,
    pub(super) last_position: i64,
    pub(super) last_hash: Hash,
    pub(super) kinds: Vec<&'static str>,
    pub(super) schema_versions: Vec<i32>,
    pub(super) keys: Vec<String>,
    pub(super) merchants: Vec<String>,
    pub(super) occurred: Vec<DateTime<Utc>>,
    pub(super) bodies: Vec<String>,
    pub(super) hashes: Vec<Vec<u8>>,
    pub(super) personal: Vec<(CustomerId, PersonalChange)>,
    pub(super) claims: Claims,
}

impl Batch {
    /// An empty batch after the event at `position` with `hash`.
    pub(super) fn after(position: i64, hash: Hash, metadata: String) -> Self {
        let now = Utc::now();
        Self {
            // Postgres keeps microseconds, and the hash must cover what is kept.
            recorded_at: DateTime::from_timestamp_micros(now.timestamp_micros()).unwrap_or(now),
            metadata,
            last_position: position,
            last_hash: hash,
            kinds: Vec::new(),
            schema_versions: Vec::new(),
            keys: Vec::new(),
            merchants: Vec::new(),
            occurred: Vec::new(),
            bodies: Vec::new(),
            hashes: Vec::new(),
            personal: Vec::new(),
            claims: Claims::default(),
        }
    }

    fn push(&mut self, fact: &Fact) {
        let encoded = codec::encode(&fact.event);
        let key = fact.event.key();
        let merchant_id = fact.merchant_id.to_string();
        self.last_position += 1;
        self.last_hash = chain::hash(
            &self.last_hash,
            &Link {
                position: self.last_position,
                kind: encoded.kind,
                schema_version: encoded.schema_version,
                key: &key,
                merchant_id: &merchant_id,
                occurred_at: fact.occurred_at,
                recorded_at: self.recorded_at,
                body: &encoded.body,
                metadata: &self.metadata,
            },
        );
        self.kinds.push(encoded.kind);
        self.schema_versions.push(encoded.schema_version);
        self.keys.push(key);
        self.merchants.push(merchant_id);
        self.occurred.push(fact.occurred_at);
        self.bodies.push(encoded.body);
        self.hashes.push(self.last_hash.to_vec());
    }

    /// No fact is to be appended.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
