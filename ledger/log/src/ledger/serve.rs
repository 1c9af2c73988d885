//! What a leader does for other gateways.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use chrono::TimeDelta;
use farthing_core::command::OpenAgain;
use farthing_core::command::wire::AnyCommand;
use farthing_core::ids::RequestId;
use farthing_core::partition::Partition;
use farthing_core::state::{State, shape};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Ledger;
use super::peer::{Failed, Reply, Request, Work, raw};
use crate::appender::{Error, IdempotentOutcome};
use crate::leases::Route;

/// How old an opening may be: less than a gateway waits for the answer before it asks again. An older one was delayed on
/// its way, and the call may be open already.
const MAX_AGE: TimeDelta = TimeDelta::seconds(5);

/// How long the end of a call is remembered: longer than an opening may be delayed.
const REMEMBERED: Duration = Duration::from_secs(30);

/// The calls of other gateways that ended lately. An opening of one of them was delayed on its way.
#[derive(Debug, Default)]
pub(super) struct RecentEnds(Mutex<Ends>);

#[derive(Debug, Default)]
struct Ends {
    ids: HashSet<RequestId>,
    /// The same, oldest first.
    order: VecDeque<(Instant, RequestId)>,
}

impl RecentEnds {
    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, request_id: RequestId) {
        self.lock().ids.remove(&request_id);
    }

    pub(super) fn insert(&self, request_id: RequestId) {
        let now = Instant::now();
        let mut guard = self.lock();
        let Ends { ids, order } = &mut *guard;
        while let Some((ended, id)) = order.front().copied()
            && now.duration_since(ended) > REMEMBERED
        {
            order.pop_front();
            ids.remove(&id);
        }
        if ids.insert(request_id) {
            order.push_back((now, request_id));
        }
    }
}

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
                match self.unless_late(request_id, age, appender.submit_early(owner, command)).await {
                    Some(opened) => answer(opened.map(|opened| *opened.outcome())),
                    None => too_late(),
                }
            }
            Work::OpenAgain(AnyCommand::OpenRequest(command)) => {
                let request_id = command.request_id;
                let opened =
                    self.unless_late(request_id, age, appender.submit(owner, OpenAgain(command))).await;
                opened.map_or_else(too_late, answer)
            }
            Work::OpenLost(AnyCommand::OpenRequest(command)) => {
                let request_id = command.request_id;
                // Its settlement was refused here: no end of the call, but the reason for this.
                self.recent_ends.remove(request_id);
                let opened =
                    self.unless_late(request_id, age, appender.submit(owner, OpenAgain(command))).await;
                opened.map_or_else(too_late, answer)
            }
            Work::Open { command: AnyCommand::OpenRequest(command), claim } => {
                let request_id = command.request_id;
                match self.unless_late(request_id, age, appender.open_under_claim(command, claim)).await {
                    Some(Ok(IdempotentOutcome::Decided(outcome, _))) => raw(&outcome),
                    Some(Ok(IdempotentOutcome::Repeated(status))) => Reply::Repeated(status),
                    Some(Err(error)) => Reply::Failed(error.into()),
                    None => too_late(),
                }
            }
            // A call is opened by the work above, which is refused when it comes too late.
            Work::Command(command) if !matches!(command, AnyCommand::OpenRequest(_)) => {
                if let AnyCommand::SettleRequest(command) = &command {
                    self.recent_ends.insert(command.request_id);
                }
                let makes_due = matches!(command, AnyCommand::AutoRecharge(_) | AnyCommand::AdvanceClock(_));
                let answer = answer(appender.submit(owner, command).await);
                if makes_due {
                    self.due.notify_one();
                }
                answer
            }
            Work::Settle(AnyCommand::SettleRequest(command)) => {
                self.recent_ends.insert(command.request_id);
                answer(appender.settle(command).await)
            }
            Work::Close { command: AnyCommand::SettleRequest(command), claim_id, request_id, end } => {
                self.recent_ends.insert(command.request_id);
                answer(appender.submit_closing(command, claim_id, request_id, end).await)
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

    /// Whether this process leads `partition` in this term of its lease, as far as it knows. What was sent in an earlier
    /// term may have been sent to another leader since.
    fn leads_in(&self, partition: Partition, term: i64) -> bool {
        *self.routes.borrow().of(partition) == Route::Here(term)
    }

    /// The answer of `submit`, which queues the opening of a call that was sent so long ago when it is polled first; `None`
    /// if the opening is too late. No end of the call is noted in between, so an end that is not seen here is queued behind
    /// the opening.
    pub(super) async fn unless_late<T>(
        &self,
        request_id: RequestId,
        age: TimeDelta,
        submit: impl Future<Output = T>,
    ) -> Option<T> {
        let mut submit = pin!(submit);
        let queued = poll_fn(|cx| {
            let ends = self.recent_ends.lock();
            let is_late = age > MAX_AGE || ends.ids.contains(&request_id);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_end_is_remembered_for_longer_than_an_opening_may_be_delayed() {
        let id = |number| RequestId::new(ulid::Ulid(number));
        let ends = RecentEnds::default();
        ends.insert(id(1));
        tokio::time::advance(MAX_AGE.to_std().unwrap()).await;
        ends.insert(id(2));
        let contains = |number| ends.lock().ids.contains(&id(number));
        assert!(contains(1) && contains(2) && !contains(3));
        tokio::time::advance(REMEMBERED).await;
        ends.insert(id(3));
        assert!(!contains(1) && contains(2), "those that are too old are forgotten");
    }
}
