//! Commands whose outcome is known before it is durable: a call is sent to its provider while its opening commits. Nobody
//! waits for that commit at first, so it may wait a little for others ([`EARLY_WAIT`](super::term::EARLY_WAIT)). The
//! leader may be another gateway.
//!
//! Invariant: an early outcome is not final. Only [`Early::durable`], or the success of a later command that depends on
//! it, says that it stands.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::batch::AppendBatch;
use super::job::{DecideResult, Job, Waiter, decide, missing_states};
use super::{Appender, Error, lost, stopped};
use farthing_core::command::Command;
use farthing_core::ids::MerchantId;
use farthing_core::state::{Missing, StateCache};

/// After this time another gateway is asked whether an outcome is durable, if nobody needed to know before. Quick calls
/// have ended by then, and their ends prove their openings.
const ASKED_AFTER: Duration = Duration::from_millis(100);

/// The outcome of a command that is not durable yet.
#[derive(Debug)]
pub struct Early<O> {
    outcome: O,
    /// `None` if the outcome is durable.
    pending: Option<Pending<O>>,
    /// What another gateway's opening needs for as long as somebody waits for it.
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

/// The answer of another gateway.
type Asked = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// An outcome that is being made durable.
enum Pending<O> {
    /// By this gateway.
    Here {
        durable: oneshot::Receiver<Result<O, Error>>,
        /// Tells the leader that somebody waits.
        hurry: Arc<Notify>,
    },
    /// By another gateway, which tells when it is asked. An abandoned question is dropped and releases its
    /// lock, which the settlement of the call may need.
    There { ask: Box<dyn Fn() -> Asked + Send>, asked_at: Instant },
    /// By nobody: it has failed, or nobody knows.
    Failed(Box<Error>),
}

impl<O> fmt::Debug for Pending<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here { .. } => "Here",
            Self::There { .. } => "There",
            Self::Failed(_) => "Failed",
        })
    }
}

impl<O> Early<O> {
    /// An outcome that is durable.
    pub const fn known(outcome: O) -> Self {
        Self { outcome, pending: None, _kept: None }
    }

    /// An outcome that another gateway is making durable. `ask` asks it, and is called only if that must be known, again if a
    /// question was given up. It must bear that a command which depends on the outcome is under way. `kept` is dropped
    /// with the early outcome.
    pub(crate) fn there<F>(
        outcome: O,
        ask: impl Fn() -> F + Send + 'static,
        kept: impl Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let ask = Box::new(move || Box::pin(ask()) as Asked);
        let pending = Pending::There { ask, asked_at: Instant::now() + ASKED_AFTER };
        Self { outcome, pending: Some(pending), _kept: Some(Box::new(kept)) }
    }

    /// The outcome as it was decided.
    pub const fn outcome(&self) -> &O {
        &self.outcome
    }

    /// Waits until the outcome is durable. On an error nothing was appended, unless it is [`Error::Unknown`].
    pub async fn durable(self) -> Result<O, Error> {
        match self.pending {
            None => Ok(self.outcome),
            Some(Pending::Failed(error)) => Err(*error),
            Some(Pending::There { ask, .. }) => ask().await.map(|()| self.outcome),
            Some(Pending::Here { mut durable, hurry }) => match durable.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Closed) => Err(lost()),
                Err(TryRecvError::Empty) => {
                    hurry.notify_one();
                    durable.await.unwrap_or_else(|_| Err(lost()))
                }
            },
        }
    }

    /// Waits for the failure of the append, which may take for ever, and does not hasten it.
    pub async fn failure(&mut self) -> Error {
        let answer = match &mut self.pending {
            None => return std::future::pending().await,
            Some(Pending::Failed(error)) => return (**error).clone(),
            Some(Pending::Here { durable, .. }) => durable.await.unwrap_or_else(|_| Err(lost())).map(drop),
            Some(Pending::There { ask, asked_at }) => {
                tokio::time::sleep_until(*asked_at).await;
                ask().await
            }
        };
        match answer {
            Ok(()) => {
                self.pending = None;
                std::future::pending().await
            }
            Err(error) => {
                self.pending = Some(Pending::Failed(Box::new(error.clone())));
                error
            }
        }
    }
}

impl Appender {
    /// As [`Appender::submit`], but returns as soon as the command is decided.
    pub async fn submit_early<C>(
        &self,
        owner: Option<MerchantId>,
        command: C,
    ) -> Result<Early<C::Outcome>, Error>
    where
        C: Command<Outcome: Clone>,
    {
        let (waiter, mut answer) = Waiter::new(self.places.take(owner, command.text_bytes())?);
        let (early, decided) = oneshot::channel();
        let job = Box::new(EarlyJob { command, waiter, early: Some(early) });
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Error::Overloaded,
            TrySendError::Closed(_) => stopped(),
        })?;
        tokio::select! {
            biased;
            answer = &mut answer => answer.map_err(|_| lost())?.map(Early::known),
            Ok(outcome) = decided => {
                let pending = Pending::Here { durable: answer, hurry: Arc::clone(&self.hurry) };
                Ok(Early { outcome, pending: Some(pending), _kept: None })
            }
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

    fn missing_states(&self, states: &StateCache) -> Option<Missing> {
        missing_states(&self.command, states)
    }

    /// A refusal is awaited.
    fn is_awaited(&self) -> bool {
        self.early.is_some()
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
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outcome_that_has_failed_is_never_durable() {
        for failure in [Error::Unknown("lost".to_owned()), Error::Moved] {
            let answer = failure.clone();
            let mut there = Early::there((), move || std::future::ready(Err(answer.clone())), ());
            assert_eq!(there.failure().await, failure);
            assert_eq!(there.failure().await, failure, "asked again");
            assert_eq!(there.durable().await, Err(failure.clone()));

            let (answer, durable) = oneshot::channel();
            let pending = Pending::Here { durable, hurry: Arc::default() };
            let mut here = Early { outcome: (), pending: Some(pending), _kept: None };
            answer.send(Err(failure.clone())).unwrap();
            assert_eq!(here.failure().await, failure);
            assert_eq!(here.durable().await, Err(failure));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_that_is_durable_is_never_in_doubt() {
        let mut known = Early::known("an outcome");
        let failure = tokio::time::timeout(ASKED_AFTER * 1_000, known.failure()).await;
        assert!(failure.is_err(), "it cannot fail");
        assert_eq!(known.durable().await, Ok("an outcome"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_waits_for_keeps_nothing_locked() {
        let locked = Arc::new(tokio::sync::Mutex::new(()));
        let asked = Arc::clone(&locked);
        let ask = move || {
            let lock = Arc::clone(&asked).lock_owned();
            async move {
                let _locked = lock.await;
                tokio::time::sleep(ASKED_AFTER).await;
                Ok(())
            }
        };
        let mut there = Early::there("an outcome", ask, ());
        let failure = tokio::time::timeout(ASKED_AFTER * 3 / 2, there.failure()).await;
        assert!(failure.is_err(), "nothing has failed yet");
        assert!(locked.try_lock().is_ok(), "a settlement of the call would wait for ever");
        assert_eq!(there.durable().await, Ok("an outcome"));
    }
}
