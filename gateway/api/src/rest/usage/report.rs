//! `GET /usage`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Datelike as _, Days, FixedOffset, NaiveTime, TimeDelta, Utc};
use farthing_projector::ReadModel;
use farthing_projector::usage::Counters;
use farthing_projector::usage::query::{self, Span};

use super::resource::Usage;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::named::{CustomerQuery, MeterQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;
use crate::rest::requests::filter::{MetadataQuery, Narrowed};

/// The longest time that one report covers.
const MAX_SPAN: TimeDelta = TimeDelta::days(366);

/// 200 with the counters of each day from `start` on and before `end`. A request counts on the day it was created,
/// whatever became of it.
#[utoipa::path(
    get, path = "/usage", operation_id = "get_usage", tag = "usage",
    params(
        ("start" = DateTime<FixedOffset>, Query, description = "The first instant; its offset says where days begin."),
        ("end" = Option<DateTime<FixedOffset>>, Query,
            description = "The instant it ends before, at most 366 days later; else the end of the present day."),
        CustomerQuery,
        MeterQuery,
        MetadataQuery,
    ),
    responses((status = 200, description = "The counters of each day and of all.", body = Usage)),
)]
pub(super) async fn report(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    mut params: Params,
) -> Result<Reply<Usage>, ApiError> {
    let asked = Asked::read(&mut params, app.merchants_now(merchant_id).await?);
    let narrowed = Narrowed::read(&mut params);
    params.checked()?;
    let Some(Asked { start, end, span }) = asked else {
        return Err(ApiError::internal("a span that is neither read nor refused"));
    };
    let days = match narrowed.filter(&app, merchant_id).await? {
        None => vec![Counters::default(); span.days()],
        Some(filter) => {
            drop(reads.caught_up(ReadModel::Usage).await?);
            let connection = reads.caught_up(ReadModel::Requests).await?;
            within(query::daily(&connection, merchant_id, &filter, span)).await?
        }
    };
    let usage = Usage::of(start, end, &days);
    usage.map(Reply::ok).ok_or_else(|| ApiError::internal("the sums of a report overflow"))
}

/// The time that is asked about.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    start: DateTime<FixedOffset>,
    end: DateTime<FixedOffset>,
    span: Span,
}

impl Asked {
    /// `start`, which decides where days begin, and `end`, which is the end of the present day there when absent.
    fn read(params: &mut Params, now: DateTime<Utc>) -> Option<Self> {
        let start = params.ruled("start", instant);
        let end = params.ruled("end", instant);
        if start.is_none() && !params.has("start") {
            params.refuse("start", "is required");
        }
        let start = start?;
        let offset = *start.offset();
        let midnight = |at: DateTime<FixedOffset>| {
            let midnight = at.naive_local().date().and_time(NaiveTime::MIN) - offset_delta(offset);
            midnight.and_utc()
        };
        let end = match end {
            Some(end) => end.with_timezone(&offset),
            None if params.has("end") => return None,
            None => (midnight(now.with_timezone(&offset)) + Days::new(1)).with_timezone(&offset),
        };
        if end <= start {
            params.refuse("end", "must be after start");
            return None;
        }
        if end - start > MAX_SPAN {
            params.refuse("end", "must be at most 366 days after start");
            return None;
        }
        let span = Span { from: start.to_utc(), to: end.to_utc(), midnight: midnight(start) };
        Some(Self { start, end, span })
    }
}

fn offset_delta(offset: FixedOffset) -> TimeDelta {
    TimeDelta::seconds(offset.local_minus_utc().into())
}

/// An ISO 8601 instant with its offset, cut to the millisecond. A `+` that was not encoded came as a blank.
fn instant(text: String) -> Result<DateTime<FixedOffset>, String> {
    let mended = match text.rsplit_once(' ') {
        Some((instant, offset)) if offset.len() == 5 && instant.len() >= 19 => format!("{instant}+{offset}"),
        _ => text,
    };
    let instant = DateTime::parse_from_rfc3339(&mended).ok().filter(|at| (1..=9998).contains(&at.year()));
    let instant = instant.ok_or_else(|| "must be an ISO 8601 date-time with its offset".to_owned())?;
    let ms = TimeDelta::nanoseconds(i64::from(instant.timestamp_subsec_nanos() % 1_000_000));
    Ok(instant - ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;

    fn read(pairs: &[(&str, &str)]) -> Result<Asked, Vec<String>> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut params = Params::of(pairs.collect());
        let asked = Asked::read(&mut params, "2026-11-21T10:00:00Z".parse().unwrap());
        match params.checked() {
            Ok(()) => Ok(asked.unwrap()),
            Err(ApiError::Input(InputError::Validation(issues))) => {
                Err(issues.into_iter().map(|issue| issue.path.join(".")).collect())
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn days_begin_at_midnight_in_the_offset_of_start() {
        for start in ["2026-11-20T23:10:00+05:45", "2026-11-20T23:10:00 05:45"] {
            let asked = read(&[("start", start), ("end", "2026-11-22T00:00:00Z")]).unwrap();
            assert_eq!(asked.span.from, "2026-11-20T17:25:00Z".parse::<DateTime<Utc>>().unwrap());
            assert_eq!(asked.span.midnight, "2026-11-19T18:15:00Z".parse::<DateTime<Utc>>().unwrap());
            assert_eq!(asked.span.days(), 3);
        }
    }

    #[test]
    fn without_an_end_the_present_day_is_the_last() {
        let asked = read(&[("start", "2026-11-20T00:00:00-11:00")]).unwrap();
        assert_eq!(asked.span.to, "2026-11-21T11:00:00Z".parse::<DateTime<Utc>>().unwrap());
        assert_eq!(asked.span.days(), 1, "at 10:00 UTC it is still the 20th there");
    }

    #[test]
    fn what_is_no_span_is_refused() {
        let start = ("start", "2026-11-20T00:00:00Z");
        for (pairs, path) in [
            (vec![], "start"),
            (vec![("start", "2026-11-20")], "start"),
            (vec![("start", "2026-11-20T00:00:00")], "start"),
            (vec![("start", "")], "start"),
            (vec![("start", "0000-01-01T00:00:00Z")], "start"),
            (vec![("start", "9999-12-31T23:59:59Z")], "start"),
            (vec![("start", "2026-11-20T00:00:00ü00:00")], "start"),
            (vec![("start", "2027-01-01T00:00:00Z")], "end"),
            (vec![start, ("end", "x")], "end"),
            (vec![start, ("end", "2026-11-20T00:00:00Z")], "end"),
            (vec![start, ("end", "2027-11-21T00:00:00.001Z")], "end"),
            (vec![start, ("end", "2026-11-21T00:00:00Z"), ("end", "2026-11-22T00:00:00Z")], "end"),
        ] {
            assert_eq!(read(&pairs), Err(vec![path.to_owned()]), "{pairs:?}");
        }
        assert!(read(&[start, ("end", "2027-11-21T00:00:00Z")]).is_ok());
    }
}
