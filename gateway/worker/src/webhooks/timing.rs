//! Timeouts and retries of webhook deliveries.

use std::time::Duration;

/// The part of a claim beyond the timeout of one attempt. The queue of a gateway that died stays claimed until its
/// claim ends.
const CLAIM_MARGIN: Duration = Duration::from_secs(15);

/// The limit on reading the body of a response, which is discarded.
pub(super) const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout, the retries and the end of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookTiming {
    /// The limit on one attempt, the connection included.
    pub timeout: Duration,
    /// The delays between attempts; the last one repeats.
    pub retry_after: Vec<Duration>,
    /// A delivery that has been queued for this long is not retried.
    pub give_up_after: Duration,
}

impl WebhookTiming {
    /// How long a claim on a queue lasts.
    pub(super) fn claim(&self) -> Duration {
        self.timeout + CLAIM_MARGIN
    }

    /// The longest time that an attempt takes.
    pub(super) fn attempt(&self) -> Duration {
        self.timeout + RESPONSE_BODY_TIMEOUT
    }

    /// Seconds until the next attempt after `attempts` failed ones (at least 1) of a delivery that has been queued for
    /// `queued_seconds`; `None` to give up.
    pub(super) fn retry_seconds(&self, attempts: u32, queued_seconds: f64) -> Option<f64> {
        let at = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
        let delay = self.retry_after.get(at).or(self.retry_after.last()).copied()?;
        let age = Duration::try_from_secs_f64(queued_seconds).unwrap_or_default();
        (age + delay <= self.give_up_after).then_some(delay.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: fn(&[u64]) -> WebhookTiming = |retry_after| WebhookTiming {
        timeout: Duration::from_secs(10),
        retry_after: retry_after.iter().copied().map(Duration::from_secs).collect(),
        give_up_after: Duration::from_hours(24),
    };

    #[test]
    fn the_last_delay_repeats() {
        let timing = TIMING(&[5, 30, 120]);
        let delays: Vec<_> = (1..=5).map(|attempts| timing.retry_seconds(attempts, 0.0)).collect();
        assert_eq!(delays, [5.0, 30.0, 120.0, 120.0, 120.0].map(Some));
    }

    #[test]
    fn a_delivery_is_given_up_once_the_next_attempt_would_be_too_late() {
        let timing = TIMING(&[60]);
        assert_eq!(timing.retry_seconds(7, 86_340.0), Some(60.0));
        assert_eq!(timing.retry_seconds(7, 86_341.0), None);
        assert_eq!(timing.retry_seconds(7, -1.0), Some(60.0), "the clock of the database was set back");
    }
}
