//! Waiting on conditions: with a deadline, never by a sleep that hopes.

use std::time::{Duration, Instant};

/// How long a condition may take to come true: longer than what a gateway of another test that was ended may hold (a
/// webhook's lane for 25 s).
pub const PATIENCE: Duration = Duration::from_mins(1);

/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `look` finds something; panics with `what` when it has not within [`PATIENCE`].
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    within(PATIENCE, what, look).await
}

/// Waits until `look` finds something; panics with `what` when it has not within `patience`.
pub async fn within<T>(patience: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until `read` gives the same value throughout `calm`; that value.
pub async fn settled<T: PartialEq>(calm: Duration, mut read: impl AsyncFnMut() -> T) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut value = read().await;
    let mut since = Instant::now();
    while since.elapsed() < calm {
        assert!(Instant::now() < deadline, "the value does not settle");
        tokio::time::sleep(PAUSE).await;
        let next = read().await;
        if next != value {
            value = next;
            since = Instant::now();
        }
    }
    value
}
