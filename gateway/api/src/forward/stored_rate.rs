//! The rate at which the answers of each merchant are stored, in bytes. What is beyond it waits; nothing is refused or left
//! unstored. Without it one merchant could fill the disk of all, and each commit of its partition would carry megabytes.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farthing_core::ids::MerchantId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What may be stored at once, as the time in which it is allowed: all of a full bucket. An answer that is longer needs a
/// full one, and leaves it owing the rest.
const BURST: Duration = Duration::from_secs(1);

/// The least number of buckets at which those that are full again are removed.
const MIN_PURGE: usize = 1_024;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Short and long answers have a bucket each, so that long ones keep no short one waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Length {
    /// Few bytes, which are stored without a turn.
    Short,
    /// More of them.
    Long,
}

/// A bucket of bytes for each merchant and length of answers.
#[derive(Debug)]
pub(super) struct StoredRate {
    bytes_per_second: NonZeroU64,
    /// Cancelled when the gateway stops: nothing waits any more then.
    lifted: CancellationToken,
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    /// When what is stored of each would be within the rate. A bucket that is not listed is full.
    until: HashMap<(MerchantId, Length), Instant>,
    /// Full ones are removed once there are so many.
    purge_at: usize,
}

impl StoredRate {
    /// At most so many bytes in a second of each merchant and length, until it is `lifted`.
    pub(super) fn new(bytes_per_second: NonZeroU64, lifted: CancellationToken) -> Self {
        let buckets = Buckets { until: HashMap::new(), purge_at: MIN_PURGE };
        Self { bytes_per_second, lifted, buckets: Mutex::new(buckets) }
    }

    /// Takes so many bytes, and waits until they are within the rate. Whoever asks first never ends its wait after the next
    /// one.
    pub(super) async fn wait(&self, merchant_id: MerchantId, length: Length, bytes: usize) {
        let wait = self.take((merchant_id, length), bytes, Instant::now());
        if !wait.is_zero() {
            let _ = self.lifted.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
    }

    /// Takes so many bytes, and returns how long it is until they are within the rate.
    fn take(&self, bucket: (MerchantId, Length), bytes: usize, now: Instant) -> Duration {
        let nanos = (bytes as u64).saturating_mul(NANOS_PER_SECOND) / self.bytes_per_second;
        let cost = Duration::from_nanos(nanos);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Buckets { until, purge_at } = &mut *buckets;
        if until.len() >= *purge_at {
            until.retain(|_, until| *until > now);
            *purge_at = MIN_PURGE.max(until.len() * 2);
        }
        let until = until.entry(bucket).or_insert(now);
        let owed = until.saturating_duration_since(now);
        *until = now + owed + cost;
        owed.saturating_sub(BURST.saturating_sub(cost))
    }
}

#[cfg(test)]
mod tests {
    use super::super::turns::tests::merchant;
    use super::*;

    /// A rate of so many bytes a second, and what lifts it.
    fn rate(bytes_per_second: u64) -> (StoredRate, CancellationToken) {
        let lifted = CancellationToken::new();
        (StoredRate::new(bytes_per_second.try_into().unwrap(), lifted.clone()), lifted)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_beyond_a_second_of_the_rate_waits_for_as_long_as_the_rate_says() {
        let (rate, _) = rate(1_000);
        let now = Instant::now();
        let take = |number, length, bytes| rate.take((merchant(number), length), bytes, now).as_millis();
        let waits = [400, 600, 1, 99, 500].map(|bytes| take(1, Length::Long, bytes));
        assert_eq!(waits, [0, 0, 1, 100, 600]);
        assert_eq!(take(1, Length::Short, 1_000), 0, "short ones have a bucket of their own");
        assert_eq!(take(1, Length::Short, 10), 10, "and a rate");
        assert_eq!(take(2, Length::Long, 1_000), 0, "another merchant has buckets of its own");
        assert_eq!(take(2, Length::Long, 0), 0, "an answer of no bytes costs nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_longer_than_a_second_of_the_rate_waits_for_a_full_bucket() {
        let (rate, _) = rate(1_000);
        let start = Instant::now();
        for number in 0..5 {
            rate.wait(merchant(1), Length::Long, 3_000).await;
            assert_eq!(start.elapsed().as_secs(), 3 * number);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn over_time_no_more_is_stored_than_the_rate_allows_and_an_idle_merchant_waits_for_nothing() {
        let (rate, _) = rate(1_000_000);
        let (start, mut stored) = (Instant::now(), 0);
        for bytes in (1..=300_000).step_by(1_777).cycle() {
            rate.wait(merchant(1), Length::Long, bytes).await;
            stored += bytes;
            if start.elapsed() >= Duration::from_mins(1) {
                break;
            }
        }
        assert!((59_000_000..=61_500_000).contains(&stored), "{stored}");
        tokio::time::advance(Duration::from_secs(2)).await;
        let idle = Instant::now();
        for _ in 0..10 {
            rate.wait(merchant(1), Length::Long, 100_000).await;
        }
        assert_eq!(idle.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_waits_once_the_rate_is_lifted() {
        let (rate, lifted) = rate(1);
        let start = Instant::now();
        rate.wait(merchant(1), Length::Long, 100_000).await;
        let lift = async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            lifted.cancel();
        };
        tokio::join!(rate.wait(merchant(1), Length::Long, 100_000), lift);
        rate.wait(merchant(1), Length::Long, usize::MAX).await;
        assert_eq!(start.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_forgotten() {
        let (rate, _) = rate(1_000);
        for number in 0..10 * MIN_PURGE as u128 {
            rate.wait(merchant(number), Length::Short, 1).await;
            tokio::time::advance(Duration::from_millis(2)).await;
        }
        assert!(rate.buckets.lock().unwrap().until.len() <= MIN_PURGE);
    }
}
