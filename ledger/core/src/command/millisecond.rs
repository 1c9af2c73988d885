//! The log's precision of time.

use chrono::{DateTime, Utc};

/// The instant `at` cut to the millisecond, as the log keeps it.
pub fn to_millisecond(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at)
}
