//! Which payments a round leaves out of its look for open ones, and exponential backoff per failed payment. Each round has a
//! separate quota for retries, which follow its new payments in the order of their due times. So every failed payment is
//! retried, and new ones wait for no more than the retries of one round.

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

/// How long a payment that has ended is left out. Its stored state, which says that it is open, is behind the log. If it is
/// for longer, the payment is looked at again, and found to have ended.
const STORED_WITHIN: Duration = Duration::from_secs(5);

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

/// The payments whose last attempt of this process failed, and those that it found to have ended.
#[derive(Debug, Default)]
pub(super) struct RetryBackoff {
    failed: HashMap<DuePayment, FailedPayment>,
    /// With the time until which they are left out.
    ended: HashMap<DuePayment, Instant>,
}

impl RetryBackoff {
    /// The ids of all payments of `partition` that are not to be looked for.
    pub(super) fn left_out(&self, partition: Partition) -> Vec<String> {
        let known = self.failed.keys().chain(self.ended.keys()).filter(|known| known.partition == partition);
        known.map(|known| known.payment_id.to_string()).collect()
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

    /// Forgets the payments of all partitions but `led`, which are another gateway's work, and those that ended a while before
    /// `now`.
    pub(super) fn keep(&mut self, led: &[Partition], now: Instant) {
        self.failed.retain(|payment, _| led.contains(&payment.partition));
        self.ended.retain(|payment, until| led.contains(&payment.partition) && *until > now);
    }

    /// Records at `now` that a payment has ended.
    pub(super) fn ended(&mut self, payment: DuePayment, now: Instant) {
        self.failed.remove(&payment);
        if self.ended.len() >= MAX_PAYMENTS {
            self.ended.clear();
        }
        self.ended.insert(payment, now + STORED_WITHIN);
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
        let left_out = backoff.left_out(PARTITION);
        let new = (0..open).map(payment).filter(|open| !left_out.contains(&open.payment_id.to_string()));
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
        backoff.keep(&[PARTITION], now);
        assert_eq!(backoff.due(now + MAX_DELAY, 10), [payment(0)]);
    }

    #[test]
    fn a_payment_that_has_ended_is_left_out_until_its_state_must_be_stored() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        for number in 0..10 {
            backoff.ended(payment(number), now);
        }
        assert_eq!(round(&backoff, 11, 10, now), [payment(10)], "the next one follows");
        backoff.keep(&[PARTITION], now + STORED_WITHIN);
        assert_eq!(round(&backoff, 11, 1, now), [payment(0)], "it is looked at again");
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
        backoff.ended(payment(0), now);
        assert!(backoff.due(now + MAX_DELAY, 1).is_empty());
    }
}
