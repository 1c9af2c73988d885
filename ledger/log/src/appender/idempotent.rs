//! Jobs under an idempotency key: decided only when the key is unused, and recorded in the transaction of their facts
//! (completion.md section 1). Invariant: a key is used once, on any number of gateways, because the leader of the
//! merchant's partition decides every use.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::batch::{AppendBatch, Claims};
use super::job::{DecideResult, Job, Waiter, decide, missing_states};
use super::{Appender, Error};
use farthing_core::command::{Command, FindOpen, OpenRequest, Opened, Refusal};
use farthing_core::idempotency::{Claim, ClaimId, ClaimStatus, SealedAnswer, StoredClaim};
use farthing_core::ids::{MerchantId, RequestId};
use farthing_core::state::{Missing, StateCache};

/// The record that a decision leaves under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimRecord {
    /// No record: the key stays unused.
    Nothing,
    /// This sealed answer.
    Answer(SealedAnswer),
    /// The forwarded call that begins; its answer follows when it ends.
    Call(RequestId),
}

/// The outcome of a command under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotentOutcome<O> {
    /// The key was new and the command was decided; with the sealed answer, if one was recorded.
    Decided(Result<O, Refusal>, Option<SealedAnswer>),
    /// The key was used before; nothing was decided.
    Repeated(ClaimStatus),
}

/// How the claim of a forwarded call ends with the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimEnd {
    /// Its sealed answer is kept.
    Answer(SealedAnswer),
    /// The provider was never reached: the key is unused again.
    Release,
}

impl Appender {
    /// As [`Appender::submit`], under `claim`: the command is decided only when the claim is new, and the record that
    /// `record` makes of the outcome is written in the transaction of its facts. `record` must be pure: it may be
    /// called more than once.
    pub async fn submit_idempotent<C, K>(
        &self,
        owner: Option<MerchantId>,
        command: C,
        claim: Claim,
        record: K,
    ) -> Result<IdempotentOutcome<C::Outcome>, Error>
    where
        C: Command,
        K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Send + 'static,
    {
        let (waiter, answer) = Waiter::new(self.places.take(owner, command.text_bytes())?);
        self.enqueue(Box::new(IdempotentJob { command, claim, record, waiter }), answer).await
    }

    /// Opens a call under `claim`, if its key is new. A call that is refused leaves the key unused. If the claim is that of
    /// this very call, its answer was lost before: it is open.
    pub async fn open_under_claim(
        &self,
        command: impl Command<Outcome = Opened> + Borrow<OpenRequest>,
        claim: Claim,
    ) -> Result<IdempotentOutcome<Opened>, Error> {
        let opening: &OpenRequest = command.borrow();
        let (request_id, owner) = (opening.request_id, Some(opening.merchant_id));
        let record = move |outcome: &Result<Opened, Refusal>| match outcome {
            Ok(_) => ClaimRecord::Call(request_id),
            Err(_) => ClaimRecord::Nothing,
        };
        let outcome = self.submit_idempotent(owner, command, claim, record).await?;
        match outcome {
            IdempotentOutcome::Repeated(ClaimStatus::InFlight(open)) if open == request_id => {
                // It may have ended meanwhile: this message was late then, and must not open it a second time.
                match self.submit(owner, FindOpen(request_id)).await {
                    Ok(opened) => Ok(IdempotentOutcome::Decided(Ok(opened), None)),
                    Err(Error::Refused(_)) => Err(Error::Unknown("the call has ended".to_owned())),
                    Err(error) => Err(error),
                }
            }
            outcome => Ok(outcome),
        }
    }

    /// As [`Appender::settle`], for the end of the call `request_id` that began under the claim `id`.
    pub async fn submit_closing<C: Command>(
        &self,
        command: C,
        id: ClaimId,
        request_id: RequestId,
        end: ClaimEnd,
    ) -> Result<C::Outcome, Error> {
        let (waiter, answer) = Waiter::new(self.places.of_settlement());
        let job = ClosingJob { command, id, request_id, end, waiter };
        self.enqueue_settlement(Box::new(job), answer).await
    }
}

/// A command that uses an idempotency key.
struct IdempotentJob<C: Command, K> {
    command: C,
    claim: Claim,
    record: K,
    waiter: Waiter<IdempotentOutcome<C::Outcome>>,
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
        let recorded = StoredClaim { fingerprint, request_id, answer: answer.clone() };
        claims.put(self.claim.id.clone(), recorded);
        IdempotentOutcome::Decided(outcome, answer)
    }
}

impl<C, K> Job for IdempotentJob<C, K>
where
    C: Command,
    K: Fn(&Result<C::Outcome, Refusal>) -> ClaimRecord + Send + 'static,
{
    fn decide(&mut self, states: &mut StateCache, batch: &mut AppendBatch) -> DecideResult {
        let recorded = batch.claims.known.get(&self.claim.id).and_then(Option::as_ref);
        match recorded.map_or(Ok(None), |recorded| recorded.meets(&self.claim, states)) {
            Ok(None) => {}
            Ok(Some(repeated)) => {
                self.waiter.answer = Some(Ok(IdempotentOutcome::Repeated(repeated)));
                return DecideResult::Decided;
            }
            Err(missing) => return DecideResult::Missing(missing),
        }
        let decided = match decide(&self.command, states, batch) {
            Ok(decided) => decided,
            Err(missing) => return DecideResult::Missing(missing),
        };
        self.waiter.answer = Some(match decided {
            Ok(outcome) => Ok(self.record(&mut batch.claims, Ok(outcome))),
            Err(Error::Refused(refusal)) => Ok(self.record(&mut batch.claims, Err(refusal))),
            Err(error) => Err(error),
        });
        DecideResult::Decided
    }

    fn missing_states(&self, states: &StateCache) -> Option<Missing> {
        missing_states(&self.command, states)
    }

    fn claim(&self) -> Option<&ClaimId> {
        Some(&self.claim.id)
    }

    fn has_expired(&self, now: Instant) -> bool {
        self.waiter.has_expired(now)
    }

    fn confirm(self: Box<Self>) {
        self.waiter.confirm();
    }

    fn end(self: Box<Self>, error: Error) {
        self.waiter.end(error);
    }
}

/// The end of a forwarded call that began under an idempotency key.
struct ClosingJob<C: Command> {
    command: C,
    id: ClaimId,
    request_id: RequestId,
    end: ClaimEnd,
    waiter: Waiter<C::Outcome>,
}

impl<C: Command> ClosingJob<C> {
    /// Ends the claim, if it is still that of the call.
    fn close(&self, claims: &mut Claims) {
        let (id, request_id) = (self.id.clone(), self.request_id);
        match &self.end {
            ClaimEnd::Answer(sealed) => claims.answer(id, request_id, sealed.clone()),
            ClaimEnd::Release => claims.release(id, request_id),
        }
    }
}

impl<C: Command> Job for ClosingJob<C> {
    fn decide(&mut self, states: &mut StateCache, batch: &mut AppendBatch) -> DecideResult {
        let decided = match decide(&self.command, states, batch) {
            Ok(decided) => decided,
            Err(missing) => return DecideResult::Missing(missing),
        };
        if decided.is_ok() {
            self.close(&mut batch.claims);
        }
        self.waiter.answer = Some(decided);
        DecideResult::Decided
    }

    fn missing_states(&self, states: &StateCache) -> Option<Missing> {
        missing_states(&self.command, states)
    }

    fn claim(&self) -> Option<&ClaimId> {
        Some(&self.id)
    }

    fn has_expired(&self, now: Instant) -> bool {
        self.waiter.has_expired(now)
    }

    fn confirm(self: Box<Self>) {
        self.waiter.confirm();
    }

    fn end(self: Box<Self>, error: Error) {
        self.waiter.end(error);
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Place;
    use super::*;
    use crate::chain::GENESIS;
    use farthing_core::command::AlreadyApplied;
    use farthing_core::idempotency::Scope;
    use farthing_core::ids::MerchantId;
    use farthing_core::secret::ServerKey;

    type Answer = Result<IdempotentOutcome<()>, Error>;

    fn claim(server_key: &ServerKey, body: &[u8]) -> Claim {
        let merchant_id: MerchantId = "mer_00000000000000000000000001".parse().unwrap();
        Claim::new(server_key, Scope { merchant_id, method: "POST", path: "/v1/a" }, "key", &[body])
    }

    fn batch() -> AppendBatch {
        AppendBatch::after(0, GENESIS, "{}".to_owned())
    }

    /// Decides a job under `claim` into `batch` and returns the answer to its caller.
    fn decide_job(claim: Claim, record: ClaimRecord, batch: &mut AppendBatch) -> Answer {
        let (waiter, mut answer) = Waiter::new(Place::unbounded());
        let record = move |_: &Result<(), Refusal>| record.clone();
        let mut job = Box::new(IdempotentJob { command: AlreadyApplied, claim, record, waiter });
        let mut states = StateCache::default();
        // No call is open.
        while let DecideResult::Missing(missing) = job.decide(&mut states, batch) {
            for key in missing.0 {
                states.load(key, None);
            }
        }
        job.confirm();
        answer.try_recv().unwrap()
    }

    #[test]
    fn a_key_is_used_once_within_a_batch() {
        let server_key = ServerKey::random();
        let (first, other) = (claim(&server_key, b"a"), claim(&server_key, b"b"));
        let mut batch = batch();
        let record = ClaimRecord::Answer(b"sealed".to_vec().into());
        let decided = IdempotentOutcome::Decided(Ok(()), Some(b"sealed".to_vec().into()));
        assert_eq!(decide_job(first.clone(), record.clone(), &mut batch), Ok(decided));
        let repeated = IdempotentOutcome::Repeated(ClaimStatus::Answered(b"sealed".to_vec().into(), None));
        assert_eq!(decide_job(first, record.clone(), &mut batch), Ok(repeated));
        assert_eq!(
            decide_job(other, record, &mut batch),
            Ok(IdempotentOutcome::Repeated(ClaimStatus::Reused))
        );
        assert_eq!(batch.claims.changes.put.len(), 1);
    }

    #[test]
    fn the_key_of_a_call_stays_used_when_the_call_has_ended() {
        let claim = claim(&ServerKey::random(), b"a");
        let request_id: RequestId = "req_00000000000000000000000001".parse().unwrap();
        let mut batch = batch();
        let outcome = decide_job(claim.clone(), ClaimRecord::Call(request_id), &mut batch);
        assert_eq!(outcome, Ok(IdempotentOutcome::Decided(Ok(()), None)));
        let repeated = decide_job(claim, ClaimRecord::Nothing, &mut batch);
        assert_eq!(repeated, Ok(IdempotentOutcome::Repeated(ClaimStatus::Ended(request_id))));
    }

    #[test]
    fn a_decision_without_a_record_leaves_its_key_unused() {
        let claim = claim(&ServerKey::random(), b"a");
        let mut batch = batch();
        for _ in 0..2 {
            let outcome = decide_job(claim.clone(), ClaimRecord::Nothing, &mut batch);
            assert_eq!(outcome, Ok(IdempotentOutcome::Decided(Ok(()), None)));
        }
        assert!(batch.claims.changes.is_empty());
    }

    #[test]
    fn the_end_of_a_call_keeps_its_answer_or_releases_its_key() {
        let id = claim(&ServerKey::random(), b"a").id;
        let request_id: RequestId = "req_00000000000000000000000001".parse().unwrap();
        let mut batch = batch();
        for end in [ClaimEnd::Answer(b"sealed".to_vec().into()), ClaimEnd::Release] {
            let (waiter, mut answer) = Waiter::new(Place::unbounded());
            let mut job =
                Box::new(ClosingJob { command: AlreadyApplied, id: id.clone(), request_id, end, waiter });
            assert!(matches!(job.decide(&mut StateCache::default(), &mut batch), DecideResult::Decided));
            job.confirm();
            assert_eq!(answer.try_recv(), Ok(Ok(())));
        }
        let changes = &batch.claims.changes;
        assert_eq!(changes.answered, [(id.clone(), request_id, b"sealed".to_vec().into())]);
        assert_eq!(changes.released, [(id, request_id)]);
    }
}
