//! `GET /usage`.

use std::sync::Arc;

use axum::extract::State;
use chrono::{DateTime, Days, FixedOffset, NaiveTime, TimeDelta, Utc};
use farthing_projector::ReadModel;
use farthing_projector::usage::Counters;
use farthing_projector::usage::query::{self, Span};
use serde::Deserialize;

use super::resource::Usage;
use crate::app::App;
use crate::db::within;
use crate::error::ApiError;
use crate::input::Issues;
use crate::rest::authenticate::Merchant;
use crate::rest::body::Reply;
use crate::rest::older_and_newer_names::{CustomerQuery, MeterQuery};
use crate::rest::params::Params;
use crate::rest::reads::Reads;
use crate::rest::requests::filter::{MetadataQuery, RequestFilter, RequestQuery};
use crate::values;

/// The longest time that one report covers.
const MAX_SPAN: TimeDelta = TimeDelta::days(366);

/// The time that a report covers.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SpanQuery {
    /// The first instant. Its offset defines where days start.
    #[param(inline)]
    start: values::LocalInstant,
    /// The instant after the last, at most 366 days after `start`; by default the end of the present day.
    #[param(inline)]
    end: Option<values::LocalInstant>,
}

/// 200 with the counters of each day from `start` to `end`. A request counts on the day of its creation, whatever its
/// status.
#[utoipa::path(
    get, path = "/usage", operation_id = "get_usage", tag = "usage",
    params(
        SpanQuery,
        CustomerQuery,
        MeterQuery,
        MetadataQuery,
    ),
    responses((status = 200, description = "The counters of each day, and the totals.", body = Usage)),
)]
pub(super) async fn report(
    State(app): State<Arc<App>>,
    Merchant { merchant_id }: Merchant,
    reads: Reads,
    Params((filters, span)): Params<(RequestQuery, SpanQuery)>,
) -> Result<Reply<Usage>, ApiError> {
    let now = app.merchants_now(merchant_id).await?;
    let (filter, ReportSpan { start, end, span }) = checked(filters, &span, now)?;
    let days = match filter.resolved(&app, merchant_id).await? {
        None => vec![Counters::default(); span.days()],
        Some(filter) => {
            drop(reads.caught_up(ReadModel::Usage, merchant_id).await?);
            let connection = reads.caught_up(ReadModel::Requests, merchant_id).await?;
            within(query::daily(connection.partition(), merchant_id, &filter, span)).await?
        }
    };
    let usage = Usage::of(start, end, &days);
    usage.map(Reply::ok).ok_or_else(|| ApiError::internal("the sums of a report overflow"))
}

/// Checks the rules between the parameters.
fn checked(
    filters: RequestQuery,
    span: &SpanQuery,
    now: DateTime<Utc>,
) -> Result<(RequestFilter, ReportSpan), ApiError> {
    let mut issues = Issues::default();
    let filter = RequestFilter::checked(filters, &mut issues);
    let span = ReportSpan::checked(span, now, &mut issues);
    issues.checked()?;
    Ok((filter, span))
}

/// The time that a report covers.
#[derive(Debug, PartialEq, Eq)]
struct ReportSpan {
    start: DateTime<FixedOffset>,
    end: DateTime<FixedOffset>,
    span: Span,
}

impl ReportSpan {
    /// Checks the span, which may be used if no issue is noted. Days start at midnight in the offset of `start`.
    /// Without `end`, the span ends with the present day.
    fn checked(query: &SpanQuery, now: DateTime<Utc>, issues: &mut Issues) -> Self {
        let start = query.start.0;
        let offset = *start.offset();
        let midnight = |at: DateTime<FixedOffset>| {
            let midnight = at.naive_local().date().and_time(NaiveTime::MIN) - offset_delta(offset);
            midnight.and_utc()
        };
        let end = match &query.end {
            Some(end) => end.0.with_timezone(&offset),
            None => (midnight(now.with_timezone(&offset)) + Days::new(1)).with_timezone(&offset),
        };
        if end <= start {
            issues.refuse(["end"], "must be after start");
        }
        if end - start > MAX_SPAN {
            issues.refuse(["end"], "must be at most 366 days after start");
        }
        let span = Span { from: start.to_utc(), to: end.to_utc(), midnight: midnight(start) };
        Self { start, end, span }
    }
}

fn offset_delta(offset: FixedOffset) -> TimeDelta {
    TimeDelta::seconds(offset.local_minus_utc().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::InputError;
    use crate::input;

    fn read(pairs: &[(&str, &str)]) -> Result<ReportSpan, Vec<String>> {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let query = input::query::<(RequestQuery, SpanQuery)>(pairs.collect());
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        match query.and_then(|(filters, span)| checked(filters, &span, now)) {
            Ok((_, span)) => Ok(span),
            Err(ApiError::Input(InputError::Validation(issues))) => {
                Err(issues.into_iter().map(|issue| issue.path.join(".")).collect())
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn days_begin_at_midnight_in_the_offset_of_start() {
        for start in ["2026-11-20T23:10:00+05:45", "2026-11-20T23:10:00 05:45"] {
            let report = read(&[("start", start), ("end", "2026-11-22T00:00:00Z")]).unwrap();
            assert_eq!(report.span.from, "2026-11-20T17:25:00Z".parse::<DateTime<Utc>>().unwrap());
            assert_eq!(report.span.midnight, "2026-11-19T18:15:00Z".parse::<DateTime<Utc>>().unwrap());
            assert_eq!(report.span.days(), 3);
        }
    }

    #[test]
    fn without_an_end_the_present_day_is_the_last() {
        let report = read(&[("start", "2026-11-20T00:00:00-11:00")]).unwrap();
        assert_eq!(report.span.to, "2026-11-21T11:00:00Z".parse::<DateTime<Utc>>().unwrap());
        assert_eq!(report.span.days(), 1, "at 10:00 UTC it is still the 20th there");
    }

    #[test]
    fn invalid_spans_are_refused() {
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
        let (customer, other) = (("customer_id", "a"), ("connection_id", "b"));
        let end = ("end", "2026-11-20T00:00:00Z");
        let all = ["customer_id", "end"].map(str::to_owned);
        assert_eq!(read(&[customer, other, start, end]), Err(all.into()), "of the filter and the span");
    }
}
