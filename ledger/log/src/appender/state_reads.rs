//! Reads of states, in the order of the commands. Invariant: a read returns only what is durable: it is answered as a
//! command that changes nothing.

use tokio::time::Instant;

use super::batch::AppendBatch;
use super::job::{DecideResult, Job, Waiter};
use super::{Appender, Error};
use farthing_core::ids::MerchantId;
use farthing_core::state::{Missing, State, StateCache, StateKey};

impl Appender {
    /// The states of `keys`, in their order; `None` for a key without a state.
    pub async fn states(
        &self,
        owner: Option<MerchantId>,
        keys: Vec<StateKey>,
    ) -> Result<Vec<Option<State>>, Error> {
        let (waiter, answer) = Waiter::new(self.places.take(owner, 0)?);
        self.enqueue(Box::new(ReadJob { keys, waiter }), answer).await
    }
}

/// A read of states.
struct ReadJob {
    keys: Vec<StateKey>,
    waiter: Waiter<Vec<Option<State>>>,
}

impl Job for ReadJob {
    fn decide(&mut self, states: &mut StateCache, _: &mut AppendBatch) -> DecideResult {
        let found: Result<Vec<_>, Missing> =
            self.keys.iter().map(|key| states.state(key).map(Option::<&State>::cloned)).collect();
        match found {
            Ok(found) => {
                self.waiter.answer = Some(Ok(found));
                DecideResult::Decided
            }
            Err(missing) => DecideResult::Missing(missing),
        }
    }

    fn missing_states(&self, states: &StateCache) -> Option<Missing> {
        self.keys.iter().find_map(|key| states.state(key).err())
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

    fn end_unreadable(self: Box<Self>, why: String) {
        self.waiter.end(Error::Internal(why));
    }
}
