//! The rate limit of the standard endpoints: so many calls per key and minute (interface.md, Limits), counted per
//! gateway process in fixed windows. Invariant: memory is bounded by [`MAX_KEYS`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use farthing_ledger::ids::SecretKeyId;

/// Calls per key and window.
const CALLS_PER_WINDOW: u32 = 1000;

/// Length of a window.
const WINDOW_SECONDS: u64 = 60;

/// Keys counted in one window; further ones are let through uncounted. Only keys that exist are counted at all.
const MAX_KEYS: usize = 100_000;

/// Where a key stands in the present window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Calls per window.
    pub(crate) limit: u32,
    /// Calls left in this one.
    pub(crate) remaining: u32,
    /// When the next one begins.
    pub(crate) reset_unix_seconds: u64,
    /// Was this call one too many? Then the seconds until the next window.
    pub(crate) retry_after_seconds: Option<u64>,
}

#[derive(Debug, Default)]
struct Window {
    number: u64,
    calls: HashMap<SecretKeyId, u32>,
}

/// The calls of every key in the present window.
#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    window: Mutex<Window>,
}

impl RateLimits {
    /// Counts one call with `key` at `now`. A call beyond the limit is not counted.
    pub(crate) fn count(&self, key: SecretKeyId, now: DateTime<Utc>) -> Standing {
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        let number = seconds / WINDOW_SECONDS;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.number < number {
            window.number = number;
            window.calls.clear();
        }
        let reset_unix_seconds = (window.number + 1) * WINDOW_SECONDS;
        let full = window.calls.len() >= MAX_KEYS && !window.calls.contains_key(&key);
        let before = if full { 0 } else { *window.calls.entry(key).or_insert(0) };
        if before >= CALLS_PER_WINDOW {
            let retry_after_seconds = Some(reset_unix_seconds.saturating_sub(seconds).max(1));
            return Standing {
                limit: CALLS_PER_WINDOW,
                remaining: 0,
                reset_unix_seconds,
                retry_after_seconds,
            };
        }
        if !full {
            window.calls.insert(key, before + 1);
        }
        let remaining = CALLS_PER_WINDOW - before - 1;
        Standing { limit: CALLS_PER_WINDOW, remaining, reset_unix_seconds, retry_after_seconds: None }
    }
}

#[cfg(test)]
mod tests {
    use farthing_ledger::ids::Mint;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn the_call_after_the_last_is_refused_until_the_next_window() {
        let limits = RateLimits::default();
        let mint = Mint::default();
        let key = SecretKeyId::new(mint.next(at(0)));
        for call in 0..CALLS_PER_WINDOW {
            let standing = limits.count(key, at(61));
            assert_eq!(standing.remaining, CALLS_PER_WINDOW - 1 - call);
            assert_eq!((standing.reset_unix_seconds, standing.retry_after_seconds), (120, None));
        }
        let refused = limits.count(key, at(100));
        assert_eq!((refused.remaining, refused.retry_after_seconds), (0, Some(20)));
        let other = SecretKeyId::new(mint.next(at(0)));
        assert_eq!(limits.count(other, at(100)).retry_after_seconds, None);
        assert_eq!(limits.count(key, at(120)).remaining, CALLS_PER_WINDOW - 1);
    }

    #[test]
    fn a_clock_that_steps_back_starts_no_new_window() {
        let limits = RateLimits::default();
        let key = SecretKeyId::new(Mint::default().next(at(0)));
        limits.count(key, at(120));
        assert_eq!(limits.count(key, at(119)).remaining, CALLS_PER_WINDOW - 2);
    }
}
