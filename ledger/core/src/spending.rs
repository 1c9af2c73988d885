//! The counters of a spend key per cycle (spent, held, admitted calls) and its token bucket: a pure fold of the
//! events of its calls. Invariants: a call counts in the cycles of its admission, whenever it ends; the key's clock
//! never runs backwards; no held amount is below zero.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::event::{Cycle, RateLimit};
use crate::money::{self, Amount};
use crate::token_bucket::Bucket;

/// One cycle's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The start of the cycle.
    pub start: DateTime<Utc>,
    /// The cost of settled calls.
    pub spent: Amount,
    /// The holds of open calls.
    pub held: Amount,
    /// Admitted calls, including failed ones.
    pub requests: u64,
}

impl Window {
    fn fresh(start: DateTime<Utc>) -> Self {
        Self { start, spent: Amount::ZERO, held: Amount::ZERO, requests: 0 }
    }
}

/// The counters of a spend key. It counts in all four cycles, so that a limit can change its cycle at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// The latest instant of any event of the key.
    clock: DateTime<Utc>,
    /// When the last call was admitted.
    pub last_used_at: Option<DateTime<Utc>>,
    /// The bucket of the rate limit, if any.
    bucket: Option<Bucket>,
    daily: Window,
    weekly: Window,
    monthly: Window,
    total: Window,
}

impl Spending {
    /// Zero counters and a full bucket.
    pub fn new(rate_limit: Option<RateLimit>, at: DateTime<Utc>) -> Self {
        let fresh = |cycle: Cycle| Window::fresh(cycle.start(at));
        Self {
            clock: at,
            last_used_at: None,
            bucket: rate_limit.map(|limit| Bucket::full(limit, at)),
            daily: fresh(Cycle::Daily),
            weekly: fresh(Cycle::Weekly),
            monthly: fresh(Cycle::Monthly),
            total: fresh(Cycle::Total),
        }
    }

    /// `now` by the key's clock. Clocks of gateways differ; the key's clock shows the latest time seen.
    pub fn instant(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now.max(self.clock)
    }

    /// The counters of the cycle around `at`, which must not be before the key's clock.
    pub fn window(&self, cycle: Cycle, at: DateTime<Utc>) -> Window {
        let kept = match cycle {
            Cycle::Daily => self.daily,
            Cycle::Weekly => self.weekly,
            Cycle::Monthly => self.monthly,
            Cycle::Total => self.total,
        };
        let start = cycle.start(at);
        if start > kept.start { Window::fresh(start) } else { kept }
    }

    /// Milliseconds until a token is available; zero if one is, or if there is no rate limit.
    pub fn wait_ms(&self, at: DateTime<Utc>) -> u64 {
        self.bucket.map_or(0, |bucket| bucket.wait_ms(at))
    }

    /// Counts a call admitted at `at` by the key's clock.
    pub fn admit(&mut self, at: DateTime<Utc>, hold: Amount) -> Result<(), money::Error> {
        self.clock = self.instant(at);
        self.last_used_at = Some(self.clock);
        if let Some(bucket) = &mut self.bucket {
            bucket.take(at);
        }
        for cycle in Cycle::ALL {
            let mut window = self.window(cycle, at);
            window.held = window.held.plus(hold)?;
            window.requests = window.requests.saturating_add(1);
            *self.kept(cycle) = window;
        }
        Ok(())
    }

    /// Counts the end of a call admitted at `admitted_at`: releases its hold and counts its cost in the cycles of its
    /// admission, except cycles that have ended.
    pub fn settle(
        &mut self,
        admitted_at: DateTime<Utc>,
        hold: Amount,
        cost: Amount,
    ) -> Result<(), money::Error> {
        for cycle in Cycle::ALL {
            let window = self.kept(cycle);
            if window.start == cycle.start(admitted_at) {
                window.held = window.held.minus(hold)?;
                window.spent = window.spent.plus(cost)?;
            }
        }
        Ok(())
    }

    /// Sets the rate limit from `at` on.
    pub fn limit_rate(&mut self, rate_limit: Option<RateLimit>, at: DateTime<Utc>) {
        self.clock = self.instant(at);
        self.bucket = match (self.bucket, rate_limit) {
            (Some(bucket), Some(limit)) => Some(bucket.under(limit, self.clock)),
            (None, Some(limit)) => Some(Bucket::full(limit, self.clock)),
            (_, None) => None,
        };
    }

    /// Returns true if no cycle holds less than zero.
    pub fn is_sound(&self) -> bool {
        [self.daily, self.weekly, self.monthly, self.total].iter().all(|window| !window.held.is_negative())
    }

    fn kept(&mut self, cycle: Cycle) -> &mut Window {
        match cycle {
            Cycle::Daily => &mut self.daily,
            Cycle::Weekly => &mut self.weekly,
            Cycle::Monthly => &mut self.monthly,
            Cycle::Total => &mut self.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn a_call_counts_in_the_cycle_of_its_admission_whenever_it_ends() {
        let (evening, morning) = (at("2026-11-21T23:59:59Z"), at("2026-11-22T00:00:01Z"));
        let mut spending = Spending::new(None, evening);
        spending.admit(evening, amount("2")).unwrap();
        spending.admit(morning, amount("3")).unwrap();
        spending.settle(evening, amount("2"), amount("1.5")).unwrap();
        let daily = spending.window(Cycle::Daily, morning);
        assert_eq!((daily.spent, daily.held, daily.requests), (amount("0"), amount("3"), 1));
        let weekly = spending.window(Cycle::Weekly, morning);
        assert_eq!((weekly.spent, weekly.held, weekly.requests), (amount("1.5"), amount("3"), 2));
        // The same if the call ends before the new cycle has any call.
        let mut alone = Spending::new(None, evening);
        alone.admit(evening, amount("2")).unwrap();
        alone.settle(evening, amount("2"), amount("1.5")).unwrap();
        assert_eq!(alone.window(Cycle::Daily, evening).spent, amount("1.5"));
        assert_eq!(alone.window(Cycle::Daily, morning), Window::fresh(at("2026-11-22T00:00:00Z")));
        assert!(spending.is_sound() && alone.is_sound());
    }

    #[test]
    fn a_gateway_whose_clock_runs_behind_cannot_bring_a_cycle_back() {
        let (evening, morning) = (at("2026-11-21T23:59:59Z"), at("2026-11-22T00:00:01Z"));
        let mut spending = Spending::new(None, evening);
        spending.admit(morning, amount("1")).unwrap();
        assert_eq!(spending.instant(evening), morning);
        spending.admit(spending.instant(evening), amount("1")).unwrap();
        assert_eq!(spending.window(Cycle::Daily, morning).requests, 2);
        assert_eq!(spending.last_used_at, Some(morning));
    }
}
