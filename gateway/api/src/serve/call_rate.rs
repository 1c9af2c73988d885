//! The rate of each merchant's calls. A call beyond it waits for its turn, so that a caller which repeats its calls
//! slows down; one whose turn is too far away is refused after as long a wait.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farthing_core::ids::MerchantId;
use tokio::time::Instant;

/// The calls that may begin at once, as the time in which their number is allowed.
const BURST: Duration = Duration::from_secs(1);

/// The longest wait for a turn.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The least number of merchants at which those whose turns are over are removed.
const MIN_PURGE: usize = 1_024;

/// The rate that each merchant may call at.
#[derive(Debug)]
pub(super) struct CallRate {
    /// The time between two calls at the highest rate.
    interval: Duration,
    turns: Mutex<Turns>,
}

#[derive(Debug)]
struct Turns {
    /// When the calls so far would be over at the highest rate.
    until: HashMap<MerchantId, Instant>,
    /// Merchants whose turns are over are removed once there are so many.
    purge_at: usize,
}

/// The call's turn does not come soon enough.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooFast;

impl CallRate {
    /// At most so many calls in a second of each merchant.
    pub(super) fn new(per_second: NonZeroU32) -> Self {
        let turns = Turns { until: HashMap::new(), purge_at: MIN_PURGE };
        Self { interval: Duration::from_secs(1) / per_second.get(), turns: Mutex::new(turns) }
    }

    /// Waits for the turn of a call of this merchant.
    pub(super) async fn wait(&self, merchant_id: MerchantId) -> Result<(), TooFast> {
        match self.take(merchant_id, Instant::now()) {
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
    fn take(&self, merchant_id: MerchantId, now: Instant) -> Result<Duration, TooFast> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.until.len() >= turns.purge_at {
            turns.until.retain(|_, until| *until > now);
            turns.purge_at = MIN_PURGE.max(turns.until.len() * 2);
        }
        let until = turns.until.get(&merchant_id).map_or(now, |until| now.max(*until)) + self.interval;
        let wait = until.duration_since(now).saturating_sub(BURST.max(self.interval));
        if wait > MAX_WAIT {
            return Err(TooFast);
        }
        turns.until.insert(merchant_id, until);
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn merchant(number: u128) -> MerchantId {
        MerchantId::new(Ulid::from_parts(1, number))
    }

    fn rate(per_second: u32) -> CallRate {
        CallRate::new(per_second.try_into().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_rate_take_turns_and_too_many_are_refused_after_a_wait() {
        let rate = rate(10);
        let start = Instant::now();
        for _ in 0..10 {
            assert_eq!(rate.wait(merchant(1)).await, Ok(()));
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "a second's calls begin at once");
        let now = Instant::now();
        for number in 1..=10 {
            assert_eq!(rate.take(merchant(1), now), Ok(Duration::from_millis(100 * number)));
        }
        assert_eq!(rate.wait(merchant(1)).await, Err(TooFast));
        assert_eq!(start.elapsed(), MAX_WAIT, "who is refused waits, too");
        assert_eq!(rate.wait(merchant(2)).await, Ok(()), "another merchant has turns of its own");
        assert_eq!(start.elapsed(), MAX_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn over_time_no_more_calls_begin_than_the_rate_allows() {
        let rate = rate(50);
        let (start, mut begun) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(20) {
            if rate.wait(merchant(1)).await.is_ok() {
                begun += 1;
            }
        }
        assert!((50 * 20..=50 * 21 + 1).contains(&begun), "{begun}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_of_one_call_a_second_admits_one_at_once() {
        let rate = rate(1);
        assert_eq!(rate.take(merchant(1), Instant::now()), Ok(Duration::ZERO));
        assert_eq!(rate.take(merchant(1), Instant::now()), Ok(Duration::from_secs(1)));
        assert_eq!(rate.take(merchant(1), Instant::now()), Err(TooFast));
    }

    #[tokio::test(start_paused = true)]
    async fn merchants_whose_turns_are_over_are_forgotten() {
        let rate = rate(1_000);
        for number in 0..10 * MIN_PURGE as u128 {
            rate.take(merchant(number), Instant::now()).unwrap();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(rate.turns.lock().unwrap().until.len() <= MIN_PURGE);
    }
}
