//! The time of a call, and the part of it that the gateway adds: all but the waits for the provider and for its caller.

use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::ForwardMetrics;

/// The times of one call.
#[derive(Debug)]
pub(super) struct CallTimes {
    began: Instant,
    /// The time that others took.
    others: Duration,
    /// Since when the provider is waited for.
    waiting: Option<Instant>,
}

impl CallTimes {
    /// Those of a call whose head has come.
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), others: Duration::ZERO, waiting: None }
    }

    /// Nothing can be done before the provider sends more.
    pub(super) fn wait_for_provider(&mut self) {
        self.waiting.get_or_insert_with(Instant::now);
    }

    /// The wait for the provider is over, if there was one.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(since) = self.waiting.take() {
            self.others += since.elapsed();
        }
    }

    /// The caller has held the response up for `pauses` in all.
    pub(super) fn without(mut self, pauses: Duration) -> Self {
        self.others += pauses;
        self
    }

    /// Counts the call, whose response has been passed on to its end.
    pub(super) fn passed_on(&self, metrics: &ForwardMetrics) {
        let duration = self.began.elapsed();
        metrics.passed_on(duration, duration.saturating_sub(self.others));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_for_others_are_no_time_of_the_gateway() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut times = CallTimes::begin();
        advance(SECOND).await;
        for _ in 0..2 {
            times.wait_for_provider();
            advance(SECOND).await;
            times.wait_for_provider();
            advance(SECOND).await;
            times.stop_waiting();
            times.stop_waiting();
        }
        let times = times.without(SECOND * 3);
        assert_eq!((times.began.elapsed(), times.others), (SECOND * 5, SECOND * 7));
    }
}
