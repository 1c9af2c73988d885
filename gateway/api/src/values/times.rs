//! Date-times.

use chrono::{DateTime, Datelike as _, FixedOffset, TimeDelta, Utc};
use farthing_core::command::to_millisecond;
use serde::{Deserialize, Deserializer};
use utoipa::openapi::schema::{KnownFormat, SchemaFormat};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{string, text};

/// The last year that a date-time can have.
const MAX_YEAR: i32 = 9999;

const NO_INSTANT: &str = "must be an ISO 8601 date-time with its offset";

const NO_YEAR: &str = "must be in the years 0001 to 9999 in UTC";

/// The first and the last year stay free, so that the days around the instant exist.
const OUT_OF_RANGE: &str = "must be in the years 0001 to 9998";

value! {
    /// A date-time in ISO 8601 with its offset, rounded down to the millisecond.
    Instant(DateTime<Utc>) = text(instant), date_time()
}

value! {
    /// A date-time in ISO 8601, rounded down to the millisecond, with its offset.
    LocalInstant(DateTime<FixedOffset>) = text(local_instant), date_time()
}

fn date_time() -> ObjectBuilder {
    string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
}

#[expect(clippy::needless_pass_by_value, reason = "rules take what they may keep")]
fn instant(text: String) -> Result<DateTime<Utc>, String> {
    let instant = DateTime::parse_from_rfc3339(&text).map_err(|_| NO_INSTANT)?.with_timezone(&Utc);
    if !(1..=MAX_YEAR).contains(&instant.year()) {
        return Err(NO_YEAR.to_owned());
    }
    Ok(to_millisecond(instant))
}

/// Reads a date-time of a query, where a `+` that was not percent-encoded arrives as a space.
fn local_instant(text: String) -> Result<DateTime<FixedOffset>, String> {
    let repaired = match text.rsplit_once(' ') {
        Some((instant, offset)) if offset.len() == 5 && instant.len() >= 19 => format!("{instant}+{offset}"),
        Some(_) | None => text,
    };
    let instant = DateTime::parse_from_rfc3339(&repaired).map_err(|_| NO_INSTANT)?;
    if !(1..MAX_YEAR).contains(&instant.year()) {
        return Err(OUT_OF_RANGE.to_owned());
    }
    Ok(instant - TimeDelta::nanoseconds(i64::from(instant.timestamp_subsec_nanos() % 1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_out_of_range_is_not_called_malformed() {
        let refused = |text: &str| local_instant(text.to_owned()).unwrap_err();
        for late in ["9999-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0000-06-01T00:00:00+02:00"] {
            assert_eq!(refused(late), OUT_OF_RANGE, "{late}");
        }
        for malformed in ["", "2026", "2026-11-01", "10000-01-01T00:00:00Z", "2026-13-01T00:00:00Z"] {
            assert_eq!(refused(malformed), NO_INSTANT, "{malformed}");
            assert_eq!(instant(malformed.to_owned()), Err(NO_INSTANT.to_owned()), "{malformed}");
        }
        assert!(local_instant("9998-12-31T23:59:59Z".to_owned()).is_ok());
        for unusual in ["9999-12-31T23:59:59-01:00", "0000-06-01T00:00:00Z", "0001-01-01T00:00:00+01:00"] {
            assert_eq!(instant(unusual.to_owned()), Err(NO_YEAR.to_owned()), "{unusual}");
        }
        assert!(instant("9999-12-31T23:59:59Z".to_owned()).is_ok());
        assert!(instant("0001-01-01T00:00:00Z".to_owned()).is_ok());
    }
}
