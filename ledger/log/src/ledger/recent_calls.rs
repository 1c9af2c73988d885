//! What a leader remembers of the calls of other gateways for a short time: an opening that was delayed on its way must not
//! open its call a second time. The leader may have forgotten the state of the call meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farthing_core::ids::RequestId;
use tokio::time::Instant;

/// When no gateway opens a call any more whose opening was sent first so long ago: it is sent again for 8 s, and too late 5 s
/// after that.
pub const OPENED_WITHIN: Duration = Duration::from_secs(15);

/// How long a call is remembered: longer than an opening may be delayed.
const REMEMBERED: Duration = Duration::from_secs(30);

/// The calls that have ended lately, and those whose openings were sent again.
#[derive(Debug, Default)]
pub(super) struct RecentCalls(Mutex<Calls>);

/// The calls, while nothing is added.
#[derive(Debug, Default)]
pub(super) struct Calls {
    ended: Recent,
    opened_again: Recent,
}

/// How an opening is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// For the first time. It is decided without a look at whether the call is open.
    First,
    /// Again, because no answer came, or under an idempotency key. It is decided only if the call is not open.
    Checked,
}

impl RecentCalls {
    /// No call is added while they are locked.
    pub(super) fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a call is asked for.
    pub(super) fn end(&self, request_id: RequestId) {
        self.lock().ended.insert(request_id);
    }

    /// A call that was asked to end has not: its opening is lost.
    pub(super) fn lost(&self, request_id: RequestId) {
        self.lock().ended.since.remove(&request_id);
    }

    /// The opening of a call is sent again: its sender waits for the first one no more.
    pub(super) fn open_again(&self, request_id: RequestId) {
        self.lock().opened_again.insert(request_id);
    }
}

impl Calls {
    /// Whether an opening that arrives now could open its call a second time.
    pub(super) fn has_passed(&self, request_id: RequestId, attempt: Attempt) -> bool {
        let is_superseded = attempt == Attempt::First && self.opened_again.contains(request_id);
        is_superseded || self.ended.contains(request_id)
    }
}

/// Calls of the last [`REMEMBERED`].
#[derive(Debug, Default)]
struct Recent {
    /// When each was noted last.
    since: HashMap<RequestId, Instant>,
    /// What was noted, oldest first.
    order: VecDeque<(Instant, RequestId)>,
}

impl Recent {
    fn insert(&mut self, request_id: RequestId) {
        let now = Instant::now();
        while let Some((since, id)) = self.order.front().copied()
            && now.duration_since(since) > REMEMBERED
        {
            self.order.pop_front();
            if self.since.get(&id) == Some(&since) {
                self.since.remove(&id);
            }
        }
        if self.since.insert(request_id, now) != Some(now) {
            self.order.push_back((now, request_id));
        }
    }

    fn contains(&self, request_id: RequestId) -> bool {
        self.since.contains_key(&request_id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::serve::MAX_AGE;
    use super::*;

    fn id(number: u128) -> RequestId {
        RequestId::new(ulid::Ulid(number))
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_remembered_for_longer_than_an_opening_may_be_delayed() {
        let calls = RecentCalls::default();
        calls.end(id(1));
        tokio::time::advance(MAX_AGE.to_std().unwrap()).await;
        calls.end(id(2));
        let has_ended = |number| calls.lock().has_passed(id(number), Attempt::Checked);
        assert!(has_ended(1) && has_ended(2) && !has_ended(3));
        tokio::time::advance(REMEMBERED).await;
        calls.end(id(3));
        assert!(!has_ended(1) && has_ended(2), "those that are too old are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_remembered_from_its_last_attempt_on() {
        for is_lost_between in [false, true] {
            let calls = RecentCalls::default();
            calls.end(id(1));
            if is_lost_between {
                calls.lost(id(1));
            }
            tokio::time::advance(REMEMBERED * 9 / 10).await;
            calls.end(id(1));
            tokio::time::advance(REMEMBERED / 5).await;
            calls.end(id(2));
            assert!(calls.lock().has_passed(id(1), Attempt::Checked), "{is_lost_between}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_opening_comes_too_late_once_it_was_sent_again_and_a_further_one_does_not() {
        let calls = RecentCalls::default();
        calls.open_again(id(1));
        assert!(calls.lock().has_passed(id(1), Attempt::First));
        assert!(!calls.lock().has_passed(id(1), Attempt::Checked));
        assert!(!calls.lock().has_passed(id(2), Attempt::First));
        calls.end(id(1));
        assert!(calls.lock().has_passed(id(1), Attempt::Checked));
        calls.lost(id(1));
        assert!(!calls.lock().has_passed(id(1), Attempt::Checked));
    }
}
