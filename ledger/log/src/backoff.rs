//! Exponential backoff between attempts.
//!
//! A type of our own rather than a crate: crates retry a closure, but the callers wait inside `select!` loops, retry
//! for ever, and start again with the first delay after a long success.

use std::time::Duration;

/// Delays that double from the first to the longest.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Delays of `first`, twice `first` and so on, none longer than `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.longest);
        delay
    }

    /// The delay before a task that failed after `run` starts again. A run longer than the longest delay counts as a
    /// success: the delays start over.
    pub fn next_delay_after(&mut self, run: Duration) -> Duration {
        if run > self.longest {
            self.next = self.first;
        }
        self.next_delay()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let mut backoff = Backoff::new(ms(2), ms(50));
        let delays: Vec<Duration> = (0..7).map(|_| backoff.next_delay()).collect();
        assert_eq!(delays, [2, 4, 8, 16, 32, 50, 50].map(ms));
    }

    #[test]
    fn delays_start_over_after_a_run_longer_than_the_longest() {
        let mut backoff = Backoff::new(ms(100), ms(5_000));
        assert_eq!(backoff.next_delay_after(ms(0)), ms(100));
        assert_eq!(backoff.next_delay_after(ms(5_000)), ms(200));
        assert_eq!(backoff.next_delay_after(ms(5_001)), ms(100));
        assert_eq!(backoff.next_delay_after(ms(1)), ms(200));
    }
}
