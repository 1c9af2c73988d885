//! What a leader does for other gateways.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use chrono::TimeDelta;
use farthing_core::command::wire::{AnyCommand, AnyOutcome};
use farthing_core::command::{OpenAgain, OpenRequest};
use farthing_core::event::FailureReason;
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_core::state::{State, shape};
use serde_json::value::RawValue;

use super::Ledger;
use super::peer::{Failed, Reply, Request, Work, raw};
use super::recent_calls::Attempt;
use crate::appender::{Appender, Error, IdempotentOutcome};
use crate::leases::Route;

/// How old an opening may be: less than a gateway waits for the answer before it asks again. An older one was delayed on
/// its way, and the call may be open already.
pub(super) const MAX_AGE: TimeDelta = TimeDelta::seconds(5);

impl Ledger {
    /// Carries out what another gateway asks.
    pub async fn serve(&self, request: Request) -> Reply {
        let partition = request.partition();
        if !self.leads_in(partition, request.term) {
            return Reply::Failed(Failed::Moved);
        }
        let appender = self.appender(partition);
        let age = self.clock.now() - request.sent_at;
        let owner = request.work.merchant_id();
        match request.work {
            Work::OpenEarly(AnyCommand::OpenRequest(command)) => {
                let request_id = command.request_id;
                let open = appender.submit_early(owner, command);
                match self.unless_late(request_id, Attempt::First, age, open).await {
                    Some(opened) => answer(opened.map(|opened| *opened.outcome())),
                    None => too_late(),
                }
            }
            Work::OpenAgain(AnyCommand::OpenRequest(command)) => {
                self.recent_calls.open_again(command.request_id);
                self.open_again(appender, command, age).await
            }
            Work::OpenLost(AnyCommand::OpenRequest(command)) => {
                // Its settlement was refused here: no end of the call, but the reason for this.
                self.recent_calls.lost(command.request_id);
                self.recent_calls.open_again(command.request_id);
                self.open_again(appender, command, age).await
            }
            Work::Open { command: AnyCommand::OpenRequest(command), claim } => {
                let request_id = command.request_id;
                let open = appender.open_under_claim(command, claim);
                match self.unless_late(request_id, Attempt::Checked, age, open).await {
                    Some(Ok(IdempotentOutcome::Decided(outcome, _))) => raw(&outcome),
                    Some(Ok(IdempotentOutcome::Repeated(status))) => Reply::Repeated(status),
                    Some(Err(error)) => Reply::Failed(error.into()),
                    None => too_late(),
                }
            }
            // A call is opened by the work above, which is refused when it comes too late.
            Work::Command(command) if !matches!(command, AnyCommand::OpenRequest(_)) => {
                if let AnyCommand::SettleRequest(command) = &command {
                    self.recent_calls.end(command.request_id);
                }
                let makes_due = matches!(command, AnyCommand::AutoRecharge(_) | AnyCommand::AdvanceClock(_));
                let answer = answer(appender.submit(owner, command).await.map(AnyOutcome::for_peers));
                if makes_due {
                    self.due.notify_one();
                }
                answer
            }
            Work::Settle(AnyCommand::SettleRequest(command)) => {
                self.recent_calls.end(command.request_id);
                answer(appender.settle(command).await.map(settled))
            }
            Work::Close { command: AnyCommand::SettleRequest(command), claim_id, request_id, end } => {
                self.recent_calls.end(command.request_id);
                answer(appender.submit_closing(command, claim_id, request_id, end).await.map(settled))
            }
            Work::States { keys, .. } => states(appender.states(owner, keys).await),
            Work::Command(_)
            | Work::OpenEarly(_)
            | Work::OpenAgain(_)
            | Work::OpenLost(_)
            | Work::Open { .. }
            | Work::Settle(_)
            | Work::Close { .. } => {
                Reply::Failed(Failed::Internal("another command was expected".to_owned()))
            }
        }
    }

    /// Opens a call of another gateway that may be open already.
    async fn open_again(&self, appender: &Appender, command: OpenRequest, age: TimeDelta) -> Reply {
        let request_id = command.request_id;
        let open = appender.submit(Some(command.merchant_id), OpenAgain(command));
        self.unless_late(request_id, Attempt::Checked, age, open).await.map_or_else(too_late, answer)
    }

    /// Whether this process leads `partition` in this term of its lease, as far as it knows. What was sent in an earlier
    /// term may have been sent to another leader since.
    fn leads_in(&self, partition: Partition, term: i64) -> bool {
        *self.routes.borrow().of(partition) == Route::Here(term)
    }

    /// The answer of `submit`, which queues the opening of a call that was sent so long ago when it is polled first; `None`
    /// if the opening is too late. Nothing about the call is noted in between, so an end, or a further opening, that is not
    /// seen here is queued behind this opening.
    pub(super) async fn unless_late<T>(
        &self,
        request_id: RequestId,
        attempt: Attempt,
        age: TimeDelta,
        submit: impl Future<Output = T>,
    ) -> Option<T> {
        let mut submit = pin!(submit);
        let queued = poll_fn(|cx| {
            let calls = self.recent_calls.lock();
            let is_late = age > MAX_AGE || calls.has_passed(request_id, attempt);
            Poll::Ready((!is_late).then(|| submit.as_mut().poll(cx)))
        });
        match queued.await? {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => Some(submit.await),
        }
    }
}

fn too_late() -> Reply {
    Reply::Failed(Failed::Unavailable("the opening of the call came too late".to_owned()))
}

/// The answer to the settlement of another gateway, as it is sent.
fn settled(outcome: Option<FailureReason>) -> AnyOutcome {
    AnyOutcome::SettleRequest(outcome).for_peers()
}

fn answer<T: serde::Serialize>(answer: Result<T, Error>) -> Reply {
    match answer {
        Ok(outcome) => raw(&Ok(outcome)),
        Err(Error::Refused(refusal)) => raw::<T>(&Err(refusal)),
        Err(error) => Reply::Failed(error.into()),
    }
}

fn states(found: Result<Vec<Option<State>>, Error>) -> Reply {
    let found = match found {
        Ok(found) => found,
        Err(error) => return Reply::Failed(error.into()),
    };
    let json = |state: Option<State>| state.map(|state| RawValue::from_string(state.to_json())).transpose();
    match found.into_iter().map(json).collect() {
        Ok(states) => Reply::States { shape: shape(), states },
        Err(error) => Reply::Failed(Failed::Internal(error.to_string())),
    }
}
