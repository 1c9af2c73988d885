//! Commands whose outcome is known before it is durable: a call is sent to its provider while its opening commits.
//!
//! Invariant: an early outcome is not final. Only [`Early::durable`] says what happened.

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::AppendBatch;
use super::job::{DecideResult, Job, Waiter, decide, missing_state};
use super::{Appender, Error, lost, stopped};
use farthing_core::command::Command;
use farthing_core::state::{Missing, StateCache};

/// The outcome of a command that is not durable yet.
#[derive(Debug)]
pub struct Early<O> {
    outcome: O,
    /// `None` if the outcome is durable.
    durable: Option<oneshot::Receiver<Result<O, Error>>>,
}

impl<O> Early<O> {
    /// An outcome that is durable.
    pub const fn known(outcome: O) -> Self {
        Self { outcome, durable: None }
    }

    /// The outcome as it was decided.
    pub const fn outcome(&self) -> &O {
        &self.outcome
    }

    /// Waits until the outcome is durable. On an error nothing was appended.
    pub async fn durable(self) -> Result<O, Error> {
        match self.durable {
            None => Ok(self.outcome),
            Some(durable) => durable.await.unwrap_or_else(|_| Err(lost())),
        }
    }
}

impl Appender {
    /// As [`Appender::submit`], but returns as soon as the command is decided.
    pub async fn submit_early<C>(&self, command: C) -> Result<Early<C::Outcome>, Error>
    where
        C: Command<Outcome: Clone>,
    {
        let (waiter, mut answer) = Waiter::new(self.places.take(command.text_bytes())?);
        let (early, decided) = oneshot::channel();
        let job = Box::new(EarlyJob { command, waiter, early: Some(early) });
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Error::Overloaded,
            TrySendError::Closed(_) => stopped(),
        })?;
        tokio::select! {
            biased;
            answer = &mut answer => answer.map_err(|_| lost())?.map(Early::known),
            Ok(outcome) = decided => Ok(Early { outcome, durable: Some(answer) }),
        }
    }
}

/// A command whose caller waits for the decision.
struct EarlyJob<C: Command> {
    command: C,
    waiter: Waiter<C::Outcome>,
    early: Option<oneshot::Sender<C::Outcome>>,
}

impl<C: Command<Outcome: Clone>> Job for EarlyJob<C> {
    fn decide(&mut self, states: &mut StateCache, batch: &mut AppendBatch) -> DecideResult {
        match decide(&self.command, states, batch) {
            Ok(answer) => {
                if let (Ok(outcome), Some(early)) = (&answer, self.early.take()) {
                    // The caller may have gone.
                    let _ = early.send(outcome.clone());
                }
                self.waiter.answer = Some(answer);
                DecideResult::Decided
            }
            Err(missing) => DecideResult::Missing(missing),
        }
    }

    fn missing_state(&self, states: &StateCache) -> Option<Missing> {
        missing_state(&self.command, states)
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
