//! What a leader does for other gateways.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::TimeDelta;
use farthing_core::command::wire::AnyCommand;
use farthing_core::command::{OpenAgain, OpenRequest};
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
    fn contains(&self, request_id: RequestId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ids.contains(&request_id)
    }

    fn remove(&self, request_id: RequestId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ids.remove(&request_id);
    }

    pub(super) fn insert(&self, request_id: RequestId) {
        let now = Instant::now();
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        match request.work {
            Work::OpenEarly(AnyCommand::OpenRequest(command)) => match self.refused(&command, age) {
                Some(failed) => Reply::Failed(failed),
                None => answer(appender.submit_early(command).await.map(|opened| *opened.outcome())),
            },
            Work::OpenAgain(AnyCommand::OpenRequest(command)) => match self.refused(&command, age) {
                Some(failed) => Reply::Failed(failed),
                None => answer(appender.submit(OpenAgain(command)).await),
            },
            Work::OpenLost(AnyCommand::OpenRequest(command)) => {
                // Its settlement was refused here: no end of the call, but the reason for this.
                self.recent_ends.remove(command.request_id);
                match self.refused(&command, age) {
                    Some(failed) => Reply::Failed(failed),
                    None => answer(appender.submit(OpenAgain(command)).await),
                }
            }
            Work::Open { command: AnyCommand::OpenRequest(command), claim } => {
                match self.refused(&command, age) {
                    Some(failed) => Reply::Failed(failed),
                    None => match appender.open_under_claim(command, claim).await {
                        Ok(IdempotentOutcome::Decided(outcome, _)) => raw(&outcome),
                        Ok(IdempotentOutcome::Repeated(status)) => Reply::Repeated(status),
                        Err(error) => Reply::Failed(error.into()),
                    },
                }
            }
            // A call is opened by the work above, which is refused when it comes too late.
            Work::Command(command) if !matches!(command, AnyCommand::OpenRequest(_)) => {
                if let AnyCommand::SettleRequest(command) = &command {
                    self.recent_ends.insert(command.request_id);
                }
                let makes_due = matches!(command, AnyCommand::AutoRecharge(_) | AnyCommand::AdvanceClock(_));
                let answer = answer(appender.submit(command).await);
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
            Work::States(keys) => states(appender.states(keys).await),
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

    /// Why an opening that was sent so long ago is refused.
    pub(super) fn refused(&self, command: &OpenRequest, age: TimeDelta) -> Option<Failed> {
        let is_late = age > MAX_AGE || self.recent_ends.contains(command.request_id);
        is_late.then(|| Failed::Unavailable("the opening of the call came too late".to_owned()))
    }
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
        assert!(ends.contains(id(1)) && ends.contains(id(2)) && !ends.contains(id(3)));
        tokio::time::advance(REMEMBERED).await;
        ends.insert(id(3));
        assert!(!ends.contains(id(1)) && ends.contains(id(2)), "those that are too old are forgotten");
    }
}
