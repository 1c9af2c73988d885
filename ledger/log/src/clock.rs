//! The instance's clock: Postgres's clock as this process last measured it, so that all gateways decide by the same
//! time. Invariant: it differs from Postgres's clock by at most half the duration of the last measurement, plus the
//! drift since then.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::command::to_millisecond;

/// Measurements that took longer are ignored as too imprecise.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);

/// The difference from which a warning is logged, in milliseconds.
const WARNING_MS: i64 = 1_000;

/// A clock that follows Postgres's.
#[derive(Debug, Default)]
pub struct Clock {
    /// The lead of Postgres's clock over this machine's, in milliseconds.
    ahead_ms: AtomicI64,
    /// In a simulation, when this machine's clock showed the Unix epoch.
    #[cfg(test)]
    simulated: Option<tokio::time::Instant>,
}

impl Clock {
    /// The time by Postgres's clock, to the millisecond.
    pub fn now(&self) -> DateTime<Utc> {
        self.corrected(self.machine())
    }

    /// A clock in simulated time, so many milliseconds ahead of Postgres's.
    #[cfg(test)]
    pub(crate) fn simulated(began: tokio::time::Instant, ahead_ms: i64) -> Self {
        Self { ahead_ms: ahead_ms.into(), simulated: Some(began) }
    }

    /// The time by this machine's clock.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "a simulation has a clock of its own"))]
    fn machine(&self) -> DateTime<Utc> {
        #[cfg(test)]
        if let Some(began) = self.simulated {
            return DateTime::UNIX_EPOCH + TimeDelta::from_std(began.elapsed()).unwrap_or_default();
        }
        Utc::now()
    }

    /// Records a measurement: Postgres's clock showed `theirs` at some time within the last `took`.
    pub fn measured(&self, theirs: DateTime<Utc>, took: Duration) {
        self.adjust(theirs, took, Utc::now());
    }

    fn adjust(&self, theirs: DateTime<Utc>, took: Duration, ours: DateTime<Utc>) {
        if took > MAX_ROUND_TRIP {
            return;
        }
        let sampled = ours - TimeDelta::from_std(took / 2).unwrap_or_default();
        let ahead_ms = (theirs - sampled).num_milliseconds();
        let moved_ms = (ahead_ms - self.ahead_ms.load(Ordering::Relaxed)).abs();
        // Ignore a difference within the error of the measurement, so that the clock does not jitter.
        if moved_ms <= TimeDelta::from_std(took).unwrap_or_default().num_milliseconds() / 2 + 1 {
            return;
        }
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        if ahead_ms.abs() >= WARNING_MS && moved_ms >= WARNING_MS {
            tracing::warn!(
                event = "clock.differs",
                ahead_ms,
                "Postgres's clock differs from this machine's; Postgres's is used"
            );
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
    fn gateways_on_machines_with_different_clocks_agree_on_the_time() {
        let (fast, slow) = (Clock::default(), Clock::default());
        // One machine is a day ahead, the other an hour behind. Both measure at the same moment, for 40 ms.
        let (day, hour) = (86_400_000, 3_600_000);
        fast.adjust(at(0), Duration::from_millis(40), at(day + 20));
        slow.adjust(at(0), Duration::from_millis(40), at(20 - hour));
        assert_eq!(fast.corrected(at(day + 5_000)), at(5_000));
        assert_eq!(slow.corrected(at(5_000 - hour)), at(5_000));
    }

    #[test]
    fn the_last_measurement_counts_unless_it_took_too_long() {
        let clock = Clock::default();
        assert_eq!(clock.corrected(at(7)), at(7));
        clock.adjust(at(500), Duration::ZERO, at(0));
        assert_eq!(clock.corrected(at(7)), at(507));
        clock.adjust(at(90_000), Duration::from_secs(2), at(0));
        assert_eq!(clock.corrected(at(7)), at(507), "too imprecise to count");
        clock.adjust(at(100), Duration::from_millis(20), at(10));
        assert_eq!(clock.corrected(at(7)), at(107));
        clock.adjust(at(111), Duration::from_millis(20), at(10));
        assert_eq!(clock.corrected(at(7)), at(107), "within the error of the measurement");
    }
}
