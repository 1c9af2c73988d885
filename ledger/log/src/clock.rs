//! The instance's clock: Postgres's clock as this process last measured it, so that all gateways decide by the same
//! time. It runs on by the monotonic clock, so a step of this machine's time of day does not move it. Invariant: it differs
//! from Postgres's clock by at most half the duration of the last measurement, plus the drift since then.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;
use tokio_postgres::Client;

/// The time by Postgres's clock.
const THEIR_TIME: &str = "SELECT clock_timestamp()";

/// Measurements that took longer are ignored as too imprecise.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);

/// The difference from which a warning is logged, in milliseconds.
const WARNING_MS: i64 = 1_000;

/// A clock that follows Postgres's. Until the first measurement it follows this machine's.
#[derive(Debug)]
pub struct Clock {
    began: Instant,
    /// The time when it began, in milliseconds of Unix time.
    began_at_ms: AtomicI64,
    /// Whether it has been measured. The first measurement counts however long it took.
    is_measured: AtomicBool,
}

impl Default for Clock {
    fn default() -> Self {
        Self::at(Instant::now(), Utc::now().timestamp_millis())
    }
}

impl Clock {
    /// The time by Postgres's clock, to the millisecond.
    pub fn now(&self) -> DateTime<Utc> {
        self.after(self.began.elapsed())
    }

    /// A clock that showed this time when it began.
    pub(crate) fn at(began: Instant, began_at_ms: i64) -> Self {
        Self { began, began_at_ms: began_at_ms.into(), is_measured: AtomicBool::new(false) }
    }

    /// Asks Postgres for its time.
    pub async fn measure(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        // Prepared before: the error is half the time that the answer takes.
        let statement = client.prepare(THEIR_TIME).await?;
        let asked = Instant::now();
        let theirs = client.query_one(&statement, &[]).await?.try_get(0)?;
        self.measured(theirs, asked.elapsed());
        Ok(())
    }

    /// Records a measurement: Postgres's clock showed `theirs` at some time within the last `took`.
    pub fn measured(&self, theirs: DateTime<Utc>, took: Duration) {
        let moved_ms = self.adjust(theirs, took, self.began.elapsed());
        let ahead_ms = (theirs - Utc::now()).num_milliseconds();
        if ahead_ms.abs() >= WARNING_MS && moved_ms.abs() >= WARNING_MS {
            tracing::warn!(
                event = "clock.differs",
                ahead_ms,
                "Postgres's clock differs from this machine's; Postgres's is used"
            );
        }
    }

    /// Takes the time of a measurement that ended `elapsed` after the clock began. Returns how far that moved it.
    fn adjust(&self, theirs: DateTime<Utc>, took: Duration, elapsed: Duration) -> i64 {
        let is_first = !self.is_measured.swap(true, Ordering::Relaxed);
        if took > MAX_ROUND_TRIP && !is_first {
            return 0;
        }
        let took = milliseconds(took);
        let began_at_ms = theirs.timestamp_millis() - (milliseconds(elapsed) - took / 2);
        let moved_ms = began_at_ms - self.began_at_ms.load(Ordering::Relaxed);
        // Ignore a difference within the error of the measurement, so that the clock does not jitter.
        if moved_ms.abs() <= took / 2 + 1 {
            return 0;
        }
        self.began_at_ms.store(began_at_ms, Ordering::Relaxed);
        moved_ms
    }

    /// The time so long after the clock began.
    fn after(&self, elapsed: Duration) -> DateTime<Utc> {
        let began_at_ms = self.began_at_ms.load(Ordering::Relaxed);
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(began_at_ms.saturating_add(milliseconds(elapsed)))
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN_MS: i64 = 1_800_000_000_000;

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(BEGAN_MS + ms).unwrap()
    }

    fn clock(ahead_ms: i64) -> Clock {
        Clock::at(Instant::now(), BEGAN_MS + ahead_ms)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn gateways_on_machines_with_different_clocks_agree_on_the_time() {
        // One machine is a day ahead, the other an hour behind. Both measure at the same moment, for 40 ms.
        let (fast, slow) = (clock(86_400_000), clock(-3_600_000));
        fast.adjust(at(0), ms(40), ms(20));
        slow.adjust(at(0), ms(40), ms(20));
        assert_eq!(fast.after(ms(5_000)), at(5_000));
        assert_eq!(slow.after(ms(5_000)), at(5_000));
    }

    #[test]
    fn the_last_measurement_counts_unless_it_took_too_long() {
        let clock = clock(0);
        assert_eq!(clock.after(ms(7)), at(7));
        assert_eq!(clock.adjust(at(60_000), ms(4_000), ms(4_000)), 58_000, "the first one counts");
        assert_eq!(clock.adjust(at(500), Duration::ZERO, Duration::ZERO), 500 - 58_000);
        assert_eq!(clock.after(ms(7)), at(507));
        assert_eq!(clock.adjust(at(90_000), ms(2_000), Duration::ZERO), 0);
        assert_eq!(clock.after(ms(7)), at(507), "too imprecise to count");
        clock.adjust(at(100), ms(20), ms(10));
        assert_eq!(clock.after(ms(7)), at(107));
        clock.adjust(at(111), ms(20), ms(10));
        assert_eq!(clock.after(ms(7)), at(107), "within the error of the measurement");
    }
}
