//! Measures how long a caller holds its response up by reading slowly. A provider gives up on a response that is held up.

use std::time::Duration;

use tokio::time::Instant;

/// If the caller has held a response up for so long in all, and the provider breaks it off, the caller is the cause.
const CAUSE: Duration = Duration::from_secs(10);

/// The pauses of one caller: from each frame until it takes the next one. Frames that fit into the buffers of its
/// connection are taken at once.
#[derive(Debug, Default)]
pub(super) struct CallerPauses {
    total: Duration,
    since: Option<Instant>,
}

impl CallerPauses {
    /// A frame has passed to the caller's connection.
    pub(super) fn frame_passed(&mut self) {
        self.since = Some(Instant::now());
    }

    /// The caller's connection takes the next frame, or has ended.
    pub(super) fn ended(&mut self) {
        if let Some(since) = self.since.take() {
            self.total += since.elapsed();
        }
    }

    /// All pauses so far.
    pub(super) const fn total(&self) -> Duration {
        self.total
    }

    /// Whether the caller is the cause if the provider now breaks the response off.
    pub(super) fn are_long(&self) -> bool {
        self.total >= CAUSE
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_add_up_and_the_time_between_them_does_not_count() {
        let mut pauses = CallerPauses::default();
        for _ in 0..10 {
            assert!(!pauses.are_long());
            pauses.frame_passed();
            advance(CAUSE / 10).await;
            pauses.ended();
            // The caller waits for the provider.
            advance(CAUSE).await;
            pauses.ended();
        }
        assert!(pauses.are_long());
    }
}
