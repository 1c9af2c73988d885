//! The token bucket of a spend key's `rate_limit` (completion.md section 6): capacity `burst`, refilled by rpm/60 a
//! second; an admitted call takes one token. Exact: counts whole units, of which one millisecond refills `rpm`.
//! Invariant: the drained units are never below zero nor above the capacity, and time never runs backwards.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::RateLimit;

/// Units in a token: the milliseconds in a minute, so that every millisecond refills `rpm` units.
const UNITS_PER_TOKEN: u128 = 60_000;

/// A token bucket. It counts the units taken out: a full bucket has none drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    limit: RateLimit,
    /// Units taken and not yet refilled, at `as_of`.
    drained: u64,
    /// The instant that `drained` is valid for.
    as_of: DateTime<Utc>,
}

impl Bucket {
    /// A full bucket.
    pub const fn full(limit: RateLimit, at: DateTime<Utc>) -> Self {
        Self { limit, drained: 0, as_of: at }
    }

    /// Milliseconds from `at` until a token is available; zero if one is.
    pub fn wait_ms(&self, at: DateTime<Utc>) -> u64 {
        let missing = (self.drained_at(at) + UNITS_PER_TOKEN).saturating_sub(self.capacity());
        // Input validation refuses a rate of zero, which would never refill.
        u64::try_from(missing.div_ceil(u128::from(self.limit.rpm.max(1)))).unwrap_or(u64::MAX)
    }

    /// Takes a token. Call it only if [`Bucket::wait_ms`] is zero.
    pub fn take(&mut self, at: DateTime<Utc>) {
        self.drain_to(self.drained_at(at) + UNITS_PER_TOKEN, at);
    }

    /// The bucket with another limit: the drained units stay drained, up to the new capacity.
    #[must_use]
    pub fn under(mut self, limit: RateLimit, at: DateTime<Utc>) -> Self {
        let drained = self.drained_at(at);
        self.limit = limit;
        self.drain_to(drained, at);
        self
    }

    fn capacity(&self) -> u128 {
        u128::from(self.limit.burst) * UNITS_PER_TOKEN
    }

    fn drain_to(&mut self, drained: u128, at: DateTime<Utc>) {
        self.drained = u64::try_from(drained.min(self.capacity())).unwrap_or(u64::MAX);
        self.as_of = at.max(self.as_of);
    }

    fn drained_at(&self, at: DateTime<Utc>) -> u128 {
        let passed_ms = u128::try_from((at - self.as_of).num_milliseconds()).unwrap_or(0);
        u128::from(self.drained).saturating_sub(passed_ms.saturating_mul(self.limit.rpm.into()))
    }
}

#[cfg(test)]
mod tests {
    use chrono::Duration;
    use proptest::prelude::*;

    use super::*;

    fn start() -> DateTime<Utc> {
        "2026-11-21T10:00:00.123Z".parse().unwrap()
    }

    fn admitted(bucket: &mut Bucket, at: DateTime<Utc>) -> bool {
        let is_available = bucket.wait_ms(at) == 0;
        if is_available {
            bucket.take(at);
        }
        is_available
    }

    #[test]
    fn of_1022_calls_in_a_minute_at_rpm_100_and_burst_10_at_most_110_are_admitted() {
        // Spread evenly; all at the end; half at the start and half at the end; ever denser.
        let calls: [Box<dyn Fn(i64) -> i64>; 4] = [
            Box::new(|call| call * 60_000 / 1022),
            Box::new(|call| call / 1021 * 60_000),
            Box::new(|call| if call < 511 { 0 } else { 59_999 }),
            Box::new(|call| call * call * 60_000 / (1022 * 1022)),
        ];
        for when in calls {
            let mut bucket = Bucket::full(RateLimit { rpm: 100, burst: 10 }, start());
            let count = (0..1022)
                .filter(|call| admitted(&mut bucket, start() + Duration::milliseconds(when(*call))))
                .count();
            assert!((10..=110).contains(&count), "{count}");
        }
        let mut bucket = Bucket::full(RateLimit { rpm: 100, burst: 10 }, start());
        let evenly = (0..=60_000).filter(|ms| admitted(&mut bucket, start() + Duration::milliseconds(*ms)));
        assert_eq!(evenly.count(), 110, "constant demand gets exactly burst and refill");
    }

    #[test]
    fn a_token_is_available_exactly_when_the_wait_is_over() {
        let mut bucket = Bucket::full(RateLimit { rpm: 7, burst: 1 }, start());
        assert!(admitted(&mut bucket, start()));
        // A token takes 60,000 / 7 ms: 8571.43.
        assert_eq!(bucket.wait_ms(start()), 8_572);
        assert!(!admitted(&mut bucket, start() + Duration::milliseconds(8_571)));
        assert!(admitted(&mut bucket, start() + Duration::milliseconds(8_572)));
    }

    #[test]
    fn a_clock_that_runs_behind_gains_nothing() {
        let mut bucket = Bucket::full(RateLimit { rpm: 60, burst: 1 }, start());
        assert!(admitted(&mut bucket, start()));
        assert!(!admitted(&mut bucket, start() - Duration::hours(1)));
        assert!(!admitted(&mut bucket, start() + Duration::milliseconds(999)));
        assert!(admitted(&mut bucket, start() + Duration::milliseconds(1_000)));
    }

    #[test]
    fn a_changed_limit_neither_refills_nor_locks_the_bucket() {
        let mut bucket = Bucket::full(RateLimit { rpm: 60, burst: 10 }, start());
        (0..10).for_each(|_| bucket.take(start()));
        let mut smaller = bucket.under(RateLimit { rpm: 60, burst: 2 }, start());
        assert_eq!(smaller.wait_ms(start()), 1_000, "empty, and no further in debt");
        assert!(admitted(&mut smaller, start() + Duration::seconds(1)));
        let larger = bucket.under(RateLimit { rpm: 60, burst: 12 }, start());
        assert_eq!(larger.wait_ms(start()), 0, "the larger capacity is available at once");
    }

    proptest! {
        #[test]
        fn no_span_of_time_admits_more_than_burst_and_refill(
            rpm in 1_u64..5_000, burst in 1_u64..50,
            pauses in proptest::collection::vec(-50_i64..900, 1..300),
        ) {
            let mut bucket = Bucket::full(RateLimit { rpm, burst }, start());
            let mut now = start();
            let mut taken = Vec::new();
            for pause in pauses {
                now += Duration::milliseconds(pause);
                if admitted(&mut bucket, now) {
                    taken.push(now.max(taken.last().copied().unwrap_or(now)));
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (last, to) in taken.iter().enumerate().skip(first) {
                    let ms = u64::try_from((*to - *from).num_milliseconds()).unwrap();
                    let count = (last - first + 1) as u64;
                    prop_assert!(count * 60_000 <= burst * 60_000 + rpm * ms, "{count} in {ms} ms");
                }
            }
        }

        #[test]
        fn the_largest_limits_stay_in_range(rpm: u64, burst: u64, ms in 0_i64..10_000_000_000_000) {
            let mut bucket = Bucket::full(RateLimit { rpm, burst }, DateTime::UNIX_EPOCH);
            let later = DateTime::UNIX_EPOCH + Duration::milliseconds(ms);
            bucket.take(later);
            bucket.wait_ms(later);
            prop_assert_eq!(bucket.under(RateLimit { rpm: 1, burst: 1 }, later).wait_ms(later) <= 60_000, true);
        }
    }
}
