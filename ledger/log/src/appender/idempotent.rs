//! Jobs under an idempotency key: decided only when the key is unused, and recorded in the transaction of their facts
//! (completion.md section 1). Invariant: a key is used once, on any number of gateways, because every such batch is
//! decided under the head's lock.

use tokio::sync::oneshot;

use super::batch::{AppendBatch, Claims};
use super::job::{DecideResult, Job, decide, missing_state};
use super::{Appender, Error};
use farthing_core::command::{Command, Refusal};
use farthing_core::idempotency::{Claim, ClaimId, Recorded, Standing};
use farthing_core::ids::RequestId;
use farthing_core::state::{Missing, StateCache};

/// The record that a decision leaves under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimRecord {
    /// None: the key stays unused.
    Nothing,
    /// This sealed answer.
    Answer(Vec<u8>),
    /// The forwarded call that begins; its answer follows when it ends.
    Call(RequestId),
}

/// The outcome of a command under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotentOutcome<O> {
    /// The key was new and the command was decided; with the sealed answer, if one was recorded.
    Decided(Result<O, Refusal>, Option<Vec<u8>>),
    /// The key was used before; nothing was decided.
    Repeated(Standing),
}

/// How the claim of a forwarded call ends with the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimEnd {
    /// Its sealed answer is kept.
    Answer(Vec<u8>),
    /// The provider was never reached: the key is unused again.
    Release,
}

impl Appender {
    /// As [`Appender::submit`], under `claim`: the command is decided only when the claim is new, and the record that
    /// `record` makes of the outcome is written in the transaction of its facts. `record` must be pure: it may be
    /// called more than once.
    pub async fn submit_idempotent<C, K>(
        &self,
        command: C,
        claim: Claim,
        record: K,
    ) -> Result<IdempotentOutcome<C::Outcome>, Error>
    where
        C: Command,
        K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Box::new(IdempotentJob { command, claim, record, reply, answer: None }), answer).await
    }

    /// As [`Appender::submit`], for the end of the call `request_id` that began under the claim `id`.
    pub async fn submit_closing<C: Command>(
        &self,
        command: C,
        id: ClaimId,
        request_id: RequestId,
        end: ClaimEnd,
    ) -> Result<C::Outcome, Error> {
        let (reply, answer) = oneshot::channel();
        let job = ClosingJob { command, id, request_id, end, reply, answer: None };
        self.enqueue(Box::new(job), answer).await
    }
}

/// A command that uses an idempotency key.
struct IdempotentJob<C: Command, K> {
    command: C,
    claim: Claim,
    record: K,
    reply: oneshot::Sender<Result<IdempotentOutcome<C::Outcome>, Error>>,
    answer: Option<Result<IdempotentOutcome<C::Outcome>, Error>>,
}

impl<C, K> IdempotentJob<C, K>
where
    C: Command,
    K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Send + 'static,
{
    /// Adds the record of `outcome` to `claims`.
    fn record(
        &self,
        claims: &mut Claims,
        outcome: Result<C::Outcome, Refusal>,
    ) -> IdempotentOutcome<C::Outcome> {
        let (request_id, answer) = match (self.record)(&outcome) {
            ClaimRecord::Nothing => return IdempotentOutcome::Decided(outcome, None),
            ClaimRecord::Answer(sealed) => (None, Some(sealed)),
            ClaimRecord::Call(request_id) => (Some(request_id), None),
        };
        let fingerprint = self.claim.fingerprint.clone();
        let in_flight = request_id.is_some();
        let recorded = Recorded { fingerprint, request_id, in_flight, answer: answer.clone() };
        claims.recorded.insert(self.claim.id.clone(), recorded.clone());
        claims.changes.put.push((self.claim.id.clone(), recorded));
        IdempotentOutcome::Decided(outcome, answer)
    }
}

impl<C, K> Job for IdempotentJob<C, K>
where
    C: Command,
    K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Send + 'static,
{
    fn decide(&mut self, states: &mut StateCache, batch: &mut AppendBatch) -> DecideResult {
        let recorded = batch.claims.recorded.get(&self.claim.id);
        if let Some(status) = recorded.and_then(|recorded| recorded.meets(&self.claim)) {
            self.answer = Some(Ok(IdempotentOutcome::Repeated(status)));
            return DecideResult::Decided;
        }
        let decided = match decide(&self.command, states, batch) {
            Ok(decided) => decided,
            Err(missing) => return DecideResult::Missing(missing),
        };
        self.answer = Some(match decided {
            Ok(outcome) => Ok(self.record(&mut batch.claims, Ok(outcome))),
            Err(Error::Refused(refusal)) => Ok(self.record(&mut batch.claims, Err(refusal))),
            Err(unavailable @ Error::Unavailable(_)) => Err(unavailable),
        });
        DecideResult::Decided
    }

    fn missing_state(&self, states: &StateCache) -> Option<Missing> {
        missing_state(&self.command, states)
    }

    fn needs_transaction(&self) -> bool {
        true
    }

    fn claim(&self) -> Option<&ClaimId> {
        Some(&self.claim.id)
    }

    fn confirm(self: Box<Self>) {
        let Self { reply, answer, .. } = *self;
        let _ = answer.map(|answer| reply.send(answer));
    }

    fn fail(self: Box<Self>, why: &str) {
        let _ = self.reply.send(Err(Error::Unavailable(why.to_owned())));
    }
}

/// The end of a forwarded call that began under an idempotency key.
struct ClosingJob<C: Command> {
    command: C,
    id: ClaimId,
    request_id: RequestId,
    end: ClaimEnd,
    reply: oneshot::Sender<Result<C::Outcome, Error>>,
    answer: Option<Result<C::Outcome, Error>>,
}

impl<C: Command> Job for ClosingJob<C> {
    fn decide(&mut self, states: &mut StateCache, batch: &mut AppendBatch) -> DecideResult {
        let decided = match decide(&self.command, states, batch) {
            Ok(decided) => decided,
            Err(missing) => return DecideResult::Missing(missing),
        };
        if decided.is_ok() {
            let (id, request_id) = (self.id.clone(), self.request_id.to_string());
            let changes = &mut batch.claims.changes;
            match &self.end {
                ClaimEnd::Answer(sealed) => changes.answered.push((id, request_id, sealed.clone())),
                ClaimEnd::Release => changes.released.push((id, request_id)),
            }
        }
        self.answer = Some(decided);
        DecideResult::Decided
    }

    fn missing_state(&self, states: &StateCache) -> Option<Missing> {
        missing_state(&self.command, states)
    }

    fn needs_transaction(&self) -> bool {
        true
    }

    fn confirm(self: Box<Self>) {
        let Self { reply, answer, .. } = *self;
        let _ = answer.map(|answer| reply.send(answer));
    }

    fn fail(self: Box<Self>, why: &str) {
        let _ = self.reply.send(Err(Error::Unavailable(why.to_owned())));
    }
}
