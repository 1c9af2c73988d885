//! The instance's clock: Postgres's, as this process last measured it, so that gateways whose machines disagree about
//! the time decide by the same one. Invariant: it is no further from Postgres's than half the time that the last
//! measurement took, and what the two clocks have drifted apart since.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::command::to_millisecond;

/// A measurement that took longer says too little.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);

/// From this difference on the operator is told.
const NOTABLE_MS: i64 = 1_000;

/// Tells the time.
#[derive(Debug, Default)]
pub struct Clock {
    /// How far Postgres's clock is ahead of this machine's, in milliseconds.
    ahead_ms: AtomicI64,
}

impl Clock {
    /// Now, by Postgres's clock, to the millisecond.
    pub fn now(&self) -> DateTime<Utc> {
        self.corrected(Utc::now())
    }

    /// Takes in what Postgres's clock said within the last `took`.
    pub fn measured(&self, theirs: DateTime<Utc>, took: Duration) {
        self.take(theirs, took, Utc::now());
    }

    fn take(&self, theirs: DateTime<Utc>, took: Duration, ours: DateTime<Utc>) {
        if took > MAX_ROUND_TRIP {
            return;
        }
        let asked = ours - TimeDelta::from_std(took / 2).unwrap_or_default();
        let ahead_ms = (theirs - asked).num_milliseconds();
        let moved_ms = (ahead_ms - self.ahead_ms.load(Ordering::Relaxed)).abs();
        // A difference that the measurement cannot tell from none leaves the clock alone: it does not tremble.
        if moved_ms <= TimeDelta::from_std(took).unwrap_or_default().num_milliseconds() / 2 + 1 {
            return;
        }
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        if ahead_ms.abs() >= NOTABLE_MS && moved_ms >= NOTABLE_MS {
            tracing::warn!(ahead_ms, "Postgres's clock is ahead of this machine's, and is followed");
        }
    }

    fn corrected(&self, ours: DateTime<Utc>) -> DateTime<Utc> {
        let ahead = TimeDelta::milliseconds(self.ahead_ms.load(Ordering::Relaxed));
        to_millisecond(ours.checked_add_signed(ahead).unwrap_or(ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_800_000_000_000 + ms).unwrap()
    }

    #[test]
    fn gateways_whose_machines_disagree_tell_the_same_time() {
        let (fast, slow) = (Clock::default(), Clock::default());
        // One machine is a day ahead, the other an hour behind; each asks at the same moment, for 40 ms.
        let (day, hour) = (86_400_000, 3_600_000);
        fast.take(at(0), Duration::from_millis(40), at(day + 20));
        slow.take(at(0), Duration::from_millis(40), at(20 - hour));
        assert_eq!(fast.corrected(at(day + 5_000)), at(5_000));
        assert_eq!(slow.corrected(at(5_000 - hour)), at(5_000));
    }

    #[test]
    fn the_last_measurement_counts_unless_it_took_too_long() {
        let clock = Clock::default();
        assert_eq!(clock.corrected(at(7)), at(7));
        clock.take(at(500), Duration::ZERO, at(0));
        assert_eq!(clock.corrected(at(7)), at(507));
        clock.take(at(90_000), Duration::from_secs(2), at(0));
        assert_eq!(clock.corrected(at(7)), at(507), "the answer lay about for an unknown time");
        clock.take(at(100), Duration::from_millis(20), at(10));
        assert_eq!(clock.corrected(at(7)), at(107));
        clock.take(at(111), Duration::from_millis(20), at(10));
        assert_eq!(clock.corrected(at(7)), at(107), "within what that measurement leaves open");
    }
}
