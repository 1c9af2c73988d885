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
    let instant = DateTime::parse_from_rfc3339(&text).ok().map(|instant| instant.with_timezone(&Utc));
    let shown = instant.filter(|instant| instant.year() <= MAX_YEAR).map(to_millisecond);
    shown.ok_or_else(|| NO_INSTANT.to_owned())
}

/// Reads a date-time of a query, where a `+` that was not percent-encoded arrives as a space.
fn local_instant(text: String) -> Result<DateTime<FixedOffset>, String> {
    let repaired = match text.rsplit_once(' ') {
        Some((instant, offset)) if offset.len() == 5 && instant.len() >= 19 => format!("{instant}+{offset}"),
        Some(_) | None => text,
    };
    // The first and the last year stay free, so that the days around the instant exist.
    let instant =
        DateTime::parse_from_rfc3339(&repaired).ok().filter(|at| (1..MAX_YEAR).contains(&at.year()));
    let instant = instant.ok_or_else(|| NO_INSTANT.to_owned())?;
    Ok(instant - TimeDelta::nanoseconds(i64::from(instant.timestamp_subsec_nanos() % 1_000_000)))
}
