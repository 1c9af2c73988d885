//! Exponential backoff per failed payment. Each round has a separate quota for retries, taken in the order of their due
//! times. So retries never delay new payments, and every failed payment is retried, however many there are.

use std::collections::HashMap;
use std::time::Duration;

use farthing_core::ids::PaymentId;
use farthing_core::partition::Partition;
use tokio::time::Instant;

/// The delay after the first failed attempt. Each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// The longest delay.
const MAX_DELAY: Duration = Duration::from_mins(5);

/// The most payments that are kept. Beyond that, all are dropped and their backoff starts from scratch.
const MAX_PAYMENTS: usize = 20_000;

/// A payment to carry out, and the partition of its merchant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DuePayment {
    pub(super) partition: Partition,
    pub(super) payment_id: PaymentId,
}

#[derive(Debug)]
struct FailedPayment {
    attempts: u32,
    retry_at: Instant,
}

/// The payments whose last attempt of this process failed.
#[derive(Debug, Default)]
pub(super) struct RetryBackoff {
    failed: HashMap<DuePayment, FailedPayment>,
}

impl RetryBackoff {
    /// The ids of all failed payments of `partition`.
    pub(super) fn ids(&self, partition: Partition) -> Vec<String> {
        let failed = self.failed.keys().filter(|open| open.partition == partition);
        failed.map(|open| open.payment_id.to_string()).collect()
    }

    /// At most `limit` payments whose retry is due at `now`, the longest overdue first.
    pub(super) fn due(&self, now: Instant, limit: usize) -> Vec<DuePayment> {
        let due = self.failed.iter().filter(|(_, failed)| failed.retry_at <= now);
        let mut due: Vec<_> = due.map(|(open, failed)| (failed.retry_at, *open)).collect();
        due.sort_unstable();
        due.into_iter().take(limit).map(|(_, open)| open).collect()
    }

    /// Records a failed attempt at `now`.
    pub(super) fn failed(&mut self, payment: DuePayment, now: Instant) {
        if self.failed.len() >= MAX_PAYMENTS {
            self.failed.clear();
        }
        let attempts = self.failed.get(&payment).map_or(0, |failed| failed.attempts);
        let delay = FIRST_DELAY.saturating_mul(1 << attempts.min(16)).min(MAX_DELAY);
        self.failed
            .insert(payment, FailedPayment { attempts: attempts.saturating_add(1), retry_at: now + delay });
    }

    /// Forgets the payments of all partitions but `led`: they are another gateway's work.
    pub(super) fn keep(&mut self, led: &[Partition]) {
        self.failed.retain(|payment, _| led.contains(&payment.partition));
    }

    /// Forgets a payment that has ended.
    pub(super) fn ended(&mut self, payment: DuePayment) {
        self.failed.remove(&payment);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PARTITION: Partition = Partition::new(3);

    fn payment(number: u128) -> DuePayment {
        DuePayment { partition: PARTITION, payment_id: PaymentId::new(ulid::Ulid(number)) }
    }

    /// A round: at most `quota` payments that have not been tried, the oldest first, and at most `quota` retries.
    fn round(backoff: &RetryBackoff, open: u128, quota: usize, now: Instant) -> Vec<DuePayment> {
        let failed = backoff.ids(PARTITION);
        let new = (0..open).map(payment).filter(|open| !failed.contains(&open.payment_id.to_string()));
        new.take(quota).chain(backoff.due(now, quota)).collect()
    }

    #[test]
    fn failing_payments_do_not_starve_others() {
        let (mut backoff, mut now) = (RetryBackoff::default(), Instant::now());
        // 250 payments always fail, and a round takes so long that all of them are due again at its end.
        let mut retried = HashSet::new();
        for number in 0..50 {
            let tried = round(&backoff, 250, 10, now);
            now += 2 * MAX_DELAY;
            for id in &tried {
                backoff.failed(*id, now);
            }
            if number < 25 {
                let new = (number * 10..number * 10 + 10).map(payment);
                assert!(new.eq(tried.iter().copied().take(10)), "new payments do not wait for retries");
            } else {
                retried.extend(tried);
            }
        }
        assert_eq!(retried.len(), 250, "each payment is retried");
        assert_eq!(round(&backoff, 251, 10, now).first(), Some(&payment(250)), "a new one is tried at once");
    }

    #[test]
    fn payments_of_a_partition_that_has_moved_are_forgotten() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        let moved = DuePayment { partition: Partition::new(4), ..payment(1) };
        backoff.failed(payment(0), now);
        backoff.failed(moved, now);
        backoff.keep(&[PARTITION]);
        assert_eq!(backoff.due(now + MAX_DELAY, 10), [payment(0)]);
    }

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        let (mut backoff, mut now) = (RetryBackoff::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..12 {
            backoff.failed(payment(0), now);
            let mut delay = Duration::ZERO;
            while backoff.due(now + delay, 1).is_empty() {
                delay += Duration::from_secs(1);
            }
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        backoff.ended(payment(0));
        assert!(backoff.ids(PARTITION).is_empty() && backoff.due(now + MAX_DELAY, 1).is_empty());
    }
}
