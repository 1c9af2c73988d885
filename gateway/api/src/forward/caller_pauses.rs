//! Measures how long a response is held up: by its caller, which reads slowly, or by pieces that wait to be converted. A
//! provider gives up on a response that is held up.

use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

/// If a response was held up for so long in all, and the provider breaks it off, that is the cause.
const CAUSE: Duration = Duration::from_secs(10);

/// The pauses of one caller: from each frame until it takes the next one. Frames that fit into the buffers of its
/// connection are taken at once.
#[derive(Debug, Default)]
pub(super) struct CallerPauses {
    total: Duration,
    since: Option<Instant>,
    conversion_waits: ConversionWaits,
}

/// The waits of pieces to be converted. The provider is not read meanwhile.
#[derive(Debug, Default)]
struct ConversionWaits {
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

    /// A piece of a response of which more may follow was asked whether it may be converted.
    pub(super) fn conversion_asked<T>(&mut self, turn: &Poll<T>) {
        let ConversionWaits { total, since } = &mut self.conversion_waits;
        if turn.is_pending() {
            since.get_or_insert_with(Instant::now);
        } else if let Some(since) = since.take() {
            *total += since.elapsed();
        }
    }

    /// All pauses of the caller so far.
    pub(super) const fn total(&self) -> Duration {
        self.total
    }

    /// Whether the caller, or the waits to be converted, are the cause if the provider now breaks the response off.
    pub(super) fn are_long(&self) -> bool {
        self.total + self.conversion_waits.total >= CAUSE
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

    #[tokio::test(start_paused = true)]
    async fn waits_to_be_converted_count_and_are_no_time_of_the_caller() {
        let mut pauses = CallerPauses::default();
        pauses.frame_passed();
        advance(CAUSE / 2).await;
        pauses.ended();
        for _ in 0..2 {
            assert!(!pauses.are_long());
            pauses.conversion_asked(&Poll::<()>::Pending);
            advance(CAUSE / 8).await;
            pauses.conversion_asked(&Poll::<()>::Pending);
            advance(CAUSE / 8).await;
            pauses.conversion_asked(&Poll::Ready(()));
            // The provider is read.
            advance(CAUSE).await;
            pauses.conversion_asked(&Poll::Ready(()));
        }
        assert!(pauses.are_long());
        assert_eq!(pauses.total(), CAUSE / 2);
    }
}
