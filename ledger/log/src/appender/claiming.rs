//! Jobs that stand under an idempotency key: decided only when the key is unused, and recorded in the transaction of
//! their facts (completion.md section 1). All of a batch is decided under the head's lock, so a key is used once, on
//! however many gateways.

use tokio::sync::oneshot;

use super::batch::{Batch, Claims, Job, Step, conclude, lacks};
use super::{Appender, Error};
use farthing_core::command::{Command, Refusal};
use farthing_core::idempotency::{Claim, ClaimId, Recorded, Standing};
use farthing_core::ids::RequestId;
use farthing_core::state::{Missing, StateCache};

/// What is to be recorded of a key with what was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// Nothing: the key stays unused.
    Nothing,
    /// This sealed answer.
    Answer(Vec<u8>),
    /// The forwarded call that begins, whose answer is yet to come.
    Call(RequestId),
}

/// What came of a command under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written<O> {
    /// It was decided now; with the sealed answer, if one was kept.
    Now(Result<O, Refusal>, Option<Vec<u8>>),
    /// The key was used before; nothing was decided.
    Before(Standing),
}

/// What becomes of the key of a forwarded call that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// Its sealed answer is kept.
    Answer(Vec<u8>),
    /// The provider was never reached: the key is unused again.
    Release,
}

impl Appender {
    /// As [`Appender::submit`], under `claim`: the command is decided only when the claim is new, and what `keep`
    /// makes of the decision is recorded in the transaction of its facts. `keep` is pure and may be asked again.
    pub async fn submit_claiming<C, K>(
        &self,
        command: C,
        claim: Claim,
        keep: K,
    ) -> Result<Written<C::Outcome>, Error>
    where
        C: Command,
        K: Fn(&Result<C::Outcome, Refusal>) -> Keep + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.answered(Box::new(Claiming { command, claim, keep, reply, answer: None }), answer).await
    }

    /// As [`Appender::submit`], for the end of the call `request_id` that began under the claim `id`.
    pub async fn submit_closing<C: Command>(
        &self,
        command: C,
        id: ClaimId,
        request_id: RequestId,
        closing: Closing,
    ) -> Result<C::Outcome, Error> {
        let (reply, answer) = oneshot::channel();
        let job = Ending { command, id, request_id, closing, reply, answer: None };
        self.answered(Box::new(job), answer).await
    }
}

struct Claiming<C: Command, K> {
    command: C,
    claim: Claim,
    keep: K,
    reply: oneshot::Sender<Result<Written<C::Outcome>, Error>>,
    answer: Option<Result<Written<C::Outcome>, Error>>,
}

impl<C, K> Claiming<C, K>
where
    C: Command,
    K: Fn(&Result<C::Outcome, Refusal>) -> Keep + Send + 'static,
{
    /// Records what is to be kept of `outcome`.
    fn record(&self, claims: &mut Claims, outcome: Result<C::Outcome, Refusal>) -> Written<C::Outcome> {
        let (request_id, answer) = match (self.keep)(&outcome) {
            Keep::Nothing => return Written::Now(outcome, None),
            Keep::Answer(sealed) => (None, Some(sealed)),
            Keep::Call(request_id) => (Some(request_id), None),
        };
        let fingerprint = self.claim.fingerprint.clone();
        let in_flight = request_id.is_some();
        let recorded = Recorded { fingerprint, request_id, in_flight, answer: answer.clone() };
        claims.recorded.insert(self.claim.id.clone(), recorded.clone());
        claims.changes.put.push((self.claim.id.clone(), recorded));
        Written::Now(outcome, answer)
    }
}

impl<C, K> Job for Claiming<C, K>
where
    C: Command,
    K: Fn(&Result<C::Outcome, Refusal>) -> Keep + Send + 'static,
{
    fn decide(&mut self, states: &mut StateCache, batch: &mut Batch) -> Step {
        let before = batch.claims.recorded.get(&self.claim.id).and_then(|there| there.meets(&self.claim));
        if let Some(standing) = before {
            self.answer = Some(Ok(Written::Before(standing)));
            return Step::Decided;
        }
        let concluded = match conclude(&self.command, states, batch) {
            Ok(concluded) => concluded,
            Err(missing) => return Step::Missing(missing),
        };
        self.answer = Some(match concluded {
            Ok(outcome) => Ok(self.record(&mut batch.claims, Ok(outcome))),
            Err(Error::Refused(refusal)) => Ok(self.record(&mut batch.claims, Err(refusal))),
            Err(unavailable @ Error::Unavailable(_)) => Err(unavailable),
        });
        Step::Decided
    }

    fn lacks(&self, states: &StateCache) -> Option<Missing> {
        lacks(&self.command, states)
    }

    fn writes_beside(&self) -> bool {
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

struct Ending<C: Command> {
    command: C,
    id: ClaimId,
    request_id: RequestId,
    closing: Closing,
    reply: oneshot::Sender<Result<C::Outcome, Error>>,
    answer: Option<Result<C::Outcome, Error>>,
}

impl<C: Command> Job for Ending<C> {
    fn decide(&mut self, states: &mut StateCache, batch: &mut Batch) -> Step {
        let concluded = match conclude(&self.command, states, batch) {
            Ok(concluded) => concluded,
            Err(missing) => return Step::Missing(missing),
        };
        if concluded.is_ok() {
            let (id, request_id) = (self.id.clone(), self.request_id.to_string());
            let changes = &mut batch.claims.changes;
            match &self.closing {
                Closing::Answer(sealed) => changes.answered.push((id, request_id, sealed.clone())),
                Closing::Release => changes.released.push((id, request_id)),
            }
        }
        self.answer = Some(concluded);
        Step::Decided
    }

    fn lacks(&self, states: &StateCache) -> Option<Missing> {
        lacks(&self.command, states)
    }

    fn writes_beside(&self) -> bool {
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
