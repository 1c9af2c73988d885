//! Waiting for conditions with a deadline, never by a fixed sleep.

use std::time::{Duration, Instant};

/// The default deadline. It is longer than the claim of a killed gateway of another test (25 s on a webhook's queue).
pub const DEADLINE: Duration = Duration::from_mins(1);

/// The interval between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until `look` finds something; panics with `what` after [`DEADLINE`].
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    within(DEADLINE, what, look).await
}

/// As [`eventually`]; the message also has what `look` saw last.
pub async fn eventually_ok<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}: {seen}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until `look` finds something; panics with `what` after `limit`.
pub async fn within<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until `read` gives the same value for `calm`, and returns it.
pub async fn settled<T: PartialEq>(calm: Duration, mut read: impl AsyncFnMut() -> T) -> T {
    let deadline = Instant::now() + DEADLINE;
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
