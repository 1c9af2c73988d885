//! Time at the precision of the log.

use chrono::{DateTime, Utc};

/// Truncates `at` to the millisecond, the precision of the log.
pub fn to_millisecond(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at)
}
