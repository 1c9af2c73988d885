//! The rate of each merchant's calls, of which one key has a part. A call beyond it waits for its turn, so that a caller
//! which repeats its calls slows down; one whose turn is too far away is refused after as long a wait.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farthing_core::ids::MerchantId;
use tokio::time::Instant;

use crate::caller_key::CallerKey;

/// The calls that may begin at once, as the time in which their number is allowed.
const BURST: Duration = Duration::from_secs(1);

/// The longest wait for a turn.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The least number of owners at which those whose turns are over are removed.
const MIN_PURGE: usize = 1_024;

/// The rate that each merchant may call at, and that of one key: three quarters of it, so that there are turns for other
/// keys.
#[derive(Debug)]
pub(super) struct CallRate(Mutex<(Turns<MerchantId>, Turns<CallerKey>)>);

/// The turns of each owner.
#[derive(Debug)]
struct Turns<O> {
    /// The time between two calls at the highest rate.
    interval: Duration,
    /// When the calls so far would be over at the highest rate.
    until: HashMap<O, Instant>,
    /// Owners whose turns are over are removed once there are so many.
    purge_at: usize,
}

/// The call's turn does not come soon enough.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooFast;

impl CallRate {
    /// At most so many calls in a second of each merchant.
    pub(super) fn new(per_second: NonZeroU32) -> Self {
        let of_merchant = Duration::from_secs(1) / per_second.get();
        let of_key = of_merchant * 4 / 3;
        Self(Mutex::new((Turns::every(of_merchant), Turns::every(of_key))))
    }

    /// Waits for the turn of a call of this merchant with the key of `caller`.
    pub(super) async fn wait(&self, merchant_id: MerchantId, caller: CallerKey) -> Result<(), TooFast> {
        match self.take(merchant_id, caller, Instant::now()) {
            Ok(Duration::ZERO) => Ok(()),
            Ok(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Err(too_fast) => {
                tokio::time::sleep(MAX_WAIT).await;
                Err(too_fast)
            }
        }
    }

    /// Takes a turn, and returns how long it is away.
    fn take(&self, merchant_id: MerchantId, caller: CallerKey, now: Instant) -> Result<Duration, TooFast> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of_merchants, of_keys) = &mut *turns;
        let (until, wait) = of_merchants.next(&merchant_id, now)?;
        let (until_of_key, wait_of_key) = of_keys.next(&caller, now)?;
        of_merchants.take(merchant_id, until, now);
        of_keys.take(caller, until_of_key, now);
        Ok(wait.max(wait_of_key))
    }
}

impl<O: Eq + Hash> Turns<O> {
    fn every(interval: Duration) -> Self {
        Self { interval, until: HashMap::new(), purge_at: MIN_PURGE }
    }

    /// When the next turn of `owner` would be over, and how long it is away.
    fn next(&self, owner: &O, now: Instant) -> Result<(Instant, Duration), TooFast> {
        let until = self.until.get(owner).map_or(now, |until| now.max(*until)) + self.interval;
        let wait = until.duration_since(now).saturating_sub(BURST.max(self.interval));
        if wait > MAX_WAIT { Err(TooFast) } else { Ok((until, wait)) }
    }

    fn take(&mut self, owner: O, until: Instant, now: Instant) {
        if self.until.len() >= self.purge_at {
            self.until.retain(|_, until| *until > now);
            self.purge_at = MIN_PURGE.max(self.until.len() * 2);
        }
        self.until.insert(owner, until);
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(Ulid::from_parts(1, number))
    }

    const FIRST: CallerKey = CallerKey::of_test(1);
    const SECOND: CallerKey = CallerKey::of_test(2);

    fn rate(per_second: u32) -> CallRate {
        CallRate::new(per_second.try_into().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_rate_take_turns_and_too_many_are_refused_after_a_wait() {
        let rate = rate(40);
        let start = Instant::now();
        for _ in 0..30 {
            assert_eq!(rate.wait(merchant(1), FIRST).await, Ok(()));
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "a second's calls begin at once");
        let now = Instant::now();
        let waits: Vec<_> = std::iter::from_fn(|| rate.take(merchant(1), FIRST, now).ok()).collect();
        assert_eq!(waits.len(), 30);
        assert!(waits.is_sorted() && waits[0] > Duration::ZERO && waits[29] <= MAX_WAIT, "{waits:?}");
        assert_eq!(rate.wait(merchant(1), FIRST).await, Err(TooFast));
        assert_eq!(start.elapsed(), MAX_WAIT, "who is refused waits, too");
        assert_eq!(rate.wait(merchant(2), SECOND).await, Ok(()), "another merchant has turns of its own");
        assert_eq!(start.elapsed(), MAX_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn over_time_no_more_calls_begin_than_the_rate_allows() {
        let rate = rate(60);
        let (start, mut begun) = (Instant::now(), [0, 0]);
        while start.elapsed() < Duration::from_secs(20) {
            let (first, second) = tokio::join!(rate.wait(merchant(1), FIRST), rate.wait(merchant(1), SECOND));
            begun[0] += u32::from(first.is_ok());
            begun[1] += u32::from(second.is_ok());
        }
        assert!((60 * 20..=60 * 23).contains(&(begun[0] + begun[1])), "{begun:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_repeats_its_calls_leaves_turns_to_the_other_keys() {
        let rate = rate(100);
        let now = Instant::now();
        let greedy = || std::iter::from_fn(|| rate.take(merchant(1), FIRST, Instant::now()).ok()).count();
        assert_eq!(greedy(), 150);
        assert_eq!(rate.take(merchant(1), SECOND, now), Ok(Duration::from_millis(510)));
        let mut admitted = 0;
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(1)).await;
            admitted += greedy();
            let other = rate.take(merchant(1), SECOND, Instant::now());
            assert!(other.is_ok(), "{other:?}");
        }
        assert!(admitted <= 20 * 75 + 1, "{admitted}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_of_one_call_a_second_admits_one_at_once() {
        let rate = rate(1);
        assert_eq!(rate.take(merchant(1), FIRST, Instant::now()), Ok(Duration::ZERO));
        assert_eq!(rate.take(merchant(1), SECOND, Instant::now()), Ok(Duration::from_secs(1)));
        assert_eq!(rate.take(merchant(1), SECOND, Instant::now()), Err(TooFast));
    }

    #[tokio::test(start_paused = true)]
    async fn merchants_whose_turns_are_over_are_forgotten() {
        let rate = rate(1_000);
        for number in 0..10 * MIN_PURGE as u128 {
            rate.take(merchant(number), FIRST, Instant::now()).unwrap();
            tokio::time::advance(Duration::from_millis(2)).await;
        }
        assert!(rate.0.lock().unwrap().0.until.len() <= MIN_PURGE);
    }
}
