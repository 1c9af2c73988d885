//! A job: a queued command, and the channel to the caller that waits for its outcome.

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Error;
use super::batch::AppendBatch;
use super::queue::Place;
use farthing_core::command::{self, Command, DecideError, Decision};
use farthing_core::idempotency::ClaimId;
use farthing_core::state::{EvolveError, Missing, StateCache};

/// The result of deciding a job once.
pub(super) enum DecideResult {
    /// Decided, as a success or a refusal; the answer waits for the commit.
    Decided,
    /// States must be loaded first.
    Missing(Missing),
}

/// A queued command. Its caller gets one answer, by [`Job::confirm`] or [`Job::end`].
pub(super) trait Job: Send {
    /// Decides on `states` and evolves them; adds the facts to `batch`.
    fn decide(&mut self, states: &mut StateCache, batch: &mut AppendBatch) -> DecideResult;

    /// The first states that the decision needs and `states` lacks. Changes nothing.
    fn missing_states(&self, states: &StateCache) -> Option<Missing>;

    /// The idempotency claim that must be known before the decision.
    fn claim(&self) -> Option<&ClaimId> {
        None
    }

    /// Whether somebody waits for the commit of the decided command.
    fn is_awaited(&self) -> bool {
        true
    }

    /// Whether the command has waited in the queue for too long.
    fn has_expired(&self, now: Instant) -> bool;

    /// Sends the decided answer: the batch is durable.
    fn confirm(self: Box<Self>);

    /// Sends an error: nothing was appended.
    fn end(self: Box<Self>, error: Error);

    /// Sends the error that a stored state cannot be read. A command may be sent again: an operator can repair the state.
    fn end_unreadable(self: Box<Self>, why: String) {
        self.end(Error::Unavailable(why));
    }
}

impl dyn Job {
    /// Sends the error that the log cannot be written now.
    pub(super) fn fail(self: Box<Self>, why: &str) {
        self.end(Error::Unavailable(why.to_owned()));
    }
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

/// The caller of a job: the channel to it, the answer for it, and its place in the queue.
pub(super) struct Waiter<T> {
    reply: oneshot::Sender<Result<T, Error>>,
    pub(super) answer: Option<Result<T, Error>>,
    place: Place,
}

impl<T> Waiter<T> {
    /// A caller in `place`, and the channel that it waits on.
    pub(super) fn new(place: Place) -> (Self, oneshot::Receiver<Result<T, Error>>) {
        let (reply, answer) = oneshot::channel();
        (Self { reply, answer: None, place }, answer)
    }

    /// Whether it has waited in the queue for too long.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.place.has_expired(now)
    }

    /// Sends the decided answer.
    pub(super) fn confirm(self) {
        // The facts stand even if the caller has gone.
        let _ = self.answer.map(|answer| self.reply.send(answer));
    }

    /// Sends an error.
    pub(super) fn end(self, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// A command without an idempotency key.
pub(super) struct CommandJob<C: Command> {
    pub(super) command: C,
    pub(super) waiter: Waiter<C::Outcome>,
}

impl<C: Command> Job for CommandJob<C> {
    fn decide(&mut self, states: &mut StateCache, batch: &mut AppendBatch) -> DecideResult {
        match decide(&self.command, states, batch) {
            Ok(answer) => {
                self.waiter.answer = Some(answer);
                DecideResult::Decided
            }
            Err(missing) => DecideResult::Missing(missing),
        }
    }

    fn missing_states(&self, states: &StateCache) -> Option<Missing> {
        missing_states(&self.command, states)
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

/// Decides `command` on `states`, evolves them and adds the facts to `batch`. Returns the answer to send once the batch
/// is durable.
pub(super) fn decide<C: Command>(
    command: &C,
    states: &mut StateCache,
    batch: &mut AppendBatch,
) -> Result<Result<C::Outcome, Error>, Missing> {
    let Decision { facts, personal, outcome } = match command::decide(command, states) {
        Ok(decision) => decision,
        Err(DecideError::Missing(missing)) => return Err(missing),
        Err(DecideError::Refused(refusal)) => return Ok(Err(Error::Refused(refusal))),
    };
    match states.evolve(&facts) {
        Ok(()) => {}
        Err(EvolveError::Missing(missing)) => return Err(missing),
        Err(EvolveError::InvariantBroken(broken)) => {
            tracing::error!(
                event = "appender.invariant_broken",
                %broken,
                "a decision would break an invariant and is not appended"
            );
            return Ok(Err(Error::Internal(broken.to_string())));
        }
    }
    for fact in facts {
        batch.push(&fact);
    }
    if let Some((customer_id, change)) = personal {
        batch.push_personal(customer_id, change);
    }
    Ok(Ok(outcome))
}

/// The first states that the decision of `command` needs and `states` lacks.
pub(super) fn missing_states<C: Command>(command: &C, states: &StateCache) -> Option<Missing> {
    match command::decide(command, states) {
        Err(DecideError::Missing(missing)) => Some(missing),
        Ok(_) | Err(DecideError::Refused(_)) => None,
    }
}
