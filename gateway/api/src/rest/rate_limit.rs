//! The rate limit of the standard endpoints: calls per key and minute (interface.md, Limits). The database counts them in
//! fixed windows. Invariant: the limit is exact across all gateways, and only existing keys are counted.

use deadpool_postgres::Object;

use crate::app::App;
use crate::db::within;
use crate::error::ApiError;

/// Calls per key and window.
const CALLS_PER_WINDOW: u32 = 1000;

/// Length of a window.
const WINDOW_SECONDS: i64 = 60;

/// Counts a call with the key of the hash $1 in the present window of $2 seconds, by the database's clock. A clock that
/// steps back starts no new window. The count stops at one call beyond the limit $3.
const COUNT: &str = "\
INSERT INTO ledger.rate_window AS w (key_hash, started, calls)
SELECT $1, t.now - t.now % $2::bigint, 1 FROM (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now) AS t
ON CONFLICT (key_hash) DO UPDATE SET
    calls = CASE WHEN w.started < excluded.started THEN 1 ELSE LEAST(w.calls, $3) + 1 END,
    started = GREATEST(w.started, excluded.started)
RETURNING floor(extract(epoch FROM clock_timestamp()))::bigint AS now, started, calls";

/// The use of a key in the present window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    /// Calls per window.
    pub(crate) limit: u32,
    /// Calls left in the present window.
    pub(crate) remaining: u32,
    /// When the next window starts.
    pub(crate) reset_unix_seconds: u64,
    /// The seconds until the next window, if this call exceeds the limit.
    pub(crate) retry_after_seconds: Option<u64>,
}

impl RateLimitStatus {
    /// The status of call number `calls` in the window that began at `started`. Times are in seconds since 1970.
    fn new(calls: u32, started: i64, now: i64) -> Self {
        let reset = started + WINDOW_SECONDS;
        let until = u64::try_from(reset - now).unwrap_or(0).max(1);
        Self {
            limit: CALLS_PER_WINDOW,
            remaining: CALLS_PER_WINDOW.saturating_sub(calls),
            reset_unix_seconds: u64::try_from(reset).unwrap_or(0),
            retry_after_seconds: (calls > CALLS_PER_WINDOW).then_some(until),
        }
    }
}

/// Counts a call with the existing key of this hash. Returns the key's use.
pub(super) async fn count_call(app: &App, key_hash: &str) -> Result<RateLimitStatus, ApiError> {
    let connection = app.connection().await?;
    within(count(&connection, key_hash)).await
}

async fn count(connection: &Object, key_hash: &str) -> Result<RateLimitStatus, ApiError> {
    let limit = i32::try_from(CALLS_PER_WINDOW).unwrap_or(i32::MAX);
    let statement = connection.prepare_cached(COUNT).await?;
    let row = connection.query_one(&statement, &[&key_hash, &WINDOW_SECONDS, &limit]).await?;
    let calls = u32::try_from(row.try_get::<_, i32>("calls")?).unwrap_or(u32::MAX);
    Ok(RateLimitStatus::new(calls, row.try_get("started")?, row.try_get("now")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_call_after_the_last_is_refused_until_the_next_window() {
        let first = RateLimitStatus::new(1, 60, 61);
        assert_eq!((first.remaining, first.reset_unix_seconds, first.retry_after_seconds), (999, 120, None));
        let last = RateLimitStatus::new(CALLS_PER_WINDOW, 60, 100);
        assert_eq!((last.remaining, last.retry_after_seconds), (0, None));
        let refused = RateLimitStatus::new(CALLS_PER_WINDOW + 1, 60, 100);
        assert_eq!((refused.remaining, refused.retry_after_seconds), (0, Some(20)));
        // The clock stepped, or the call waited until the next window.
        assert_eq!(RateLimitStatus::new(CALLS_PER_WINDOW + 1, 60, 130).retry_after_seconds, Some(1));
    }
}
