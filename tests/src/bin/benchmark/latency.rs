//! Latencies of many attempts, in microseconds.

use std::time::{Duration, Instant};

/// The result of a measurement.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    micros: Vec<u32>,
    length: Duration,
}

impl Latencies {
    /// Joins the measurements of several clients within `length`.
    pub(crate) fn join(parts: &[Vec<u32>], length: Duration) -> Self {
        let mut micros = parts.concat();
        micros.sort_unstable();
        Self { micros, length }
    }

    /// The number of attempts.
    pub(crate) fn count(&self) -> u64 {
        self.micros.len() as u64
    }

    /// Attempts per second.
    pub(crate) fn per_second(&self) -> u64 {
        per_second(self.count(), self.length)
    }

    /// The latency that so many thousandths of the attempts did not exceed.
    pub(crate) fn percentile(&self, thousandths: usize) -> u32 {
        let at = self.micros.len() * thousandths / 1_000;
        self.micros.get(at.min(self.micros.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

/// `count` per second of `length`.
pub(crate) fn per_second(count: u64, length: Duration) -> u64 {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
    count * 1_000 / millis
}

/// Microseconds since `start`.
pub(crate) fn since(start: Instant) -> u32 {
    u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// Microseconds as milliseconds with two digits.
pub(crate) fn millis(micros: u32) -> String {
    let hundredths = (micros + 5) / 10;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
