//! The bound of the traces that begin in a second, whoever asks for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;

/// How many traces may begin in a second.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: u32,
    since: Instant,
    /// The second, counted from `since`, in the upper half, and how many have begun in it.
    window: AtomicU64,
    /// Counts those that may not.
    over: Counter,
}

impl Budget {
    pub(super) fn new(per_second: u32, over: Counter) -> Self {
        Self { per_second, since: Instant::now(), window: AtomicU64::new(0), over }
    }

    /// Whether another trace may begin now.
    pub(super) fn take(&self) -> bool {
        let may = self.take_in(self.since.elapsed().as_secs());
        if !may {
            self.over.inc();
        }
        may
    }

    fn take_in(&self, second: u64) -> bool {
        let taken = self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |window| {
            let taken = if window >> 32 == second { window & u64::from(u32::MAX) } else { 0 };
            (taken < u64::from(self.per_second)).then_some((second << 32) | (taken + 1))
        });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_own_traces() {
        let budget = Budget::new(2, Counter::default());
        let taken = [7, 7, 7, 8, 8, 8, 1_000_000].map(|second| budget.take_in(second));
        assert_eq!(taken, [true, true, false, true, true, false, true]);
    }

    #[test]
    fn what_is_over_the_limit_is_counted() {
        let budget = Budget::new(0, Counter::default());
        assert!(!budget.take() && !budget.take());
        assert_eq!(budget.over.get(), 2);
    }
}
