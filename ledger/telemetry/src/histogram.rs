//! A histogram of atomics: an observation takes no lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// The upper bounds of durations, in nanoseconds.
const DURATIONS: &[u64] = &[
    100 * MICROSECOND,
    250 * MICROSECOND,
    500 * MICROSECOND,
    MILLISECOND,
    2_500 * MICROSECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    2_500 * MILLISECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    300 * SECOND,
];

/// The upper bounds of numbers.
const NUMBERS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// What a histogram observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Durations, kept in nanoseconds and shown in seconds.
    Seconds,
    /// Numbers of things.
    Number,
}

impl Scale {
    const fn bounds(self) -> &'static [u64] {
        match self {
            Self::Seconds => DURATIONS,
            Self::Number => NUMBERS,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a sum above 2^53 is only shown")]
    fn shown(self, value: u64) -> f64 {
        match self {
            Self::Seconds => Duration::from_nanos(value).as_secs_f64(),
            Self::Number => value as f64,
        }
    }
}

/// A histogram. Copies share it.
#[derive(Debug, Clone)]
pub struct Histogram(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    scale: Scale,
    /// The observations up to each bound and above the one before; the last ones are above all bounds.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(scale: Scale) -> Self {
        let buckets = (0..=scale.bounds().len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Inner { scale, buckets, sum: AtomicU64::new(0) }))
    }

    /// Counts a duration.
    pub fn observe(&self, duration: Duration) {
        self.count(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a size.
    pub fn observe_size(&self, size: usize) {
        self.count(u64::try_from(size).unwrap_or(u64::MAX));
    }

    fn count(&self, value: u64) {
        let Inner { scale, buckets, sum } = &*self.0;
        let bucket = scale.bounds().partition_point(|bound| *bound < value);
        buckets[bucket].fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(value, Ordering::Relaxed);
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Inner { scale, buckets, sum } = &*self.0;
        let bounds = scale.bounds().iter().map(|bound| scale.shown(*bound)).chain([f64::INFINITY]);
        let counts = buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = scale.shown(sum.load(Ordering::Relaxed));
        encoder.encode_histogram::<Vec<(String, String)>>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_is_in_the_bucket_of_the_next_bound() {
        let histogram = Histogram::new(Scale::Number);
        for size in [0, 1, 2, 3, 512, 513] {
            histogram.observe_size(size);
        }
        let counts: Vec<_> =
            histogram.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        assert_eq!(counts, [2, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(histogram.0.sum.load(Ordering::Relaxed), 1_031);
    }
}
