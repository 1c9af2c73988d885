//! The rate limit of the standard endpoints: calls per key and minute (interface.md, Limits). The database counts them in
//! fixed windows. Invariant: the limit is exact across all gateways, and only existing keys are counted.
//! Few calls of a key are counted at once, so that those of one key take few connections; and none is counted until the end
//! of a window that is full.

use std::time::Duration;

use deadpool_postgres::Object;
use farthing_core::ids::MerchantId;
use farthing_core::secret::KeyHash;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use crate::app::App;
use crate::caller_key::CallerKey;
use crate::error::{ApiError, GatewayLimit};
use crate::limit_per::LimitPer;
use crate::read_turns::Reader;

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

/// The longest wait for the counts of the same key before.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// The calls of a key that are counted at once: fewer than the short reads of its merchant, where these are several.
const fn counts_at_once(connections: usize) -> usize {
    if connections < 12 { 1 } else { 2 }
}

/// The most keys whose full window is remembered. The calls of the others are counted in vain.
const MAX_FULL: usize = 16_384;

/// The keys whose calls are counted.
#[derive(Debug)]
pub(crate) struct RateLimits {
    counting: LimitPer<CallerKey>,
    full: Cache<CallerKey, FullWindow>,
}

/// A window without calls left.
#[derive(Debug, Clone, Copy)]
struct FullWindow {
    reset_unix_seconds: u64,
    /// The window has not ended before.
    until: Instant,
}

impl FullWindow {
    /// The window of which the database, asked at `asked_at`, has told this.
    fn of(status: RateLimitStatus, asked_at: Instant) -> Option<Self> {
        // The database told whole seconds: the window may end up to one earlier. After its clock stepped back, it would be
        // remembered for longer than a window lasts.
        let seconds = status.retry_after_seconds?.saturating_sub(1).min(WINDOW_SECONDS.unsigned_abs());
        let until = asked_at + Duration::from_secs(seconds);
        Some(Self { reset_unix_seconds: status.reset_unix_seconds, until })
    }

    /// What the window tells a further call; `None` once it may have ended.
    fn status(self) -> Option<RateLimitStatus> {
        let left = self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        Some(RateLimitStatus {
            limit: CALLS_PER_WINDOW,
            remaining: 0,
            reset_unix_seconds: self.reset_unix_seconds,
            retry_after_seconds: Some(left.as_secs() + 1),
        })
    }
}

impl RateLimits {
    /// The counts of a gateway with so many `connections` for reads.
    pub(crate) fn new(connections: usize) -> Self {
        Self { counting: LimitPer::new(counts_at_once(connections)), full: Cache::new(MAX_FULL) }
    }

    /// The status of a key that has no calls left in the present window, as far as this gateway knows.
    pub(super) fn full(&self, hash: &KeyHash) -> Option<RateLimitStatus> {
        self.full.get(&CallerKey::from(hash))?.status()
    }

    /// Counts a call with the merchant's key of this hash. Returns the key's use.
    pub(super) async fn count_call(
        &self,
        app: &App,
        merchant_id: MerchantId,
        hash: &KeyHash,
    ) -> Result<RateLimitStatus, ApiError> {
        let key = CallerKey::from(hash);
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.counting.of(key).acquire_owned()).await;
        let refusal = || ApiError::overloaded_by_merchant(GatewayLimit::CountsOfKey);
        let Ok(Ok(_turn)) = turn else { return Err(refusal()) };
        // The call before this one may have filled the window.
        if let Some(full) = self.full(hash) {
            return Ok(full);
        }
        let connection = app.short_read(Reader::Merchant(merchant_id)).await?;
        let asked_at = Instant::now();
        let status = connection.within(count(&connection, hash.as_str())).await?;
        if let Some(full) = FullWindow::of(status, asked_at) {
            self.full.insert(key, full);
        }
        Ok(status)
    }
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

    #[test]
    fn one_key_leaves_short_reads_to_the_others_of_its_merchant() {
        for connections in 8..100 {
            assert!(counts_at_once(connections) < connections / 4, "{connections}");
        }
        assert_eq!(counts_at_once(3), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_window_is_remembered_until_it_may_have_ended() {
        let now = Instant::now();
        assert!(FullWindow::of(RateLimitStatus::new(CALLS_PER_WINDOW, 60, 100), now).is_none());
        let told = RateLimitStatus::new(CALLS_PER_WINDOW + 1, 60, 100);
        let full = FullWindow::of(told, now).unwrap();
        assert_eq!(full.status(), Some(told));
        tokio::time::advance(Duration::from_millis(18_500)).await;
        let later = full.status().unwrap();
        assert_eq!((later.reset_unix_seconds, later.retry_after_seconds), (120, Some(1)));
        // The database's second 100 may have been nearly over.
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(full.status(), None);
        let stepped_back = RateLimitStatus::new(CALLS_PER_WINDOW + 1, 100_000, 100);
        let full = FullWindow::of(stepped_back, Instant::now()).unwrap();
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(full.status(), None);
    }
}
