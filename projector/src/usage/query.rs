//! Reports usage per day. Whole quarters of an hour come from the sums; the edges of the span, and quarters that a
//! midnight divides, come from the requests themselves.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_core::ids::MerchantId;

use super::Counters;
use super::fold::{QUARTER, quarter};
use super::request_sums::add_requests;
use crate::query::{Error, PartitionClient, instant, text};
use crate::requests::RequestFilter;

/// The time that a report covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first instant of the report.
    pub from: DateTime<Utc>,
    /// The first instant after the report; later than `from`.
    pub to: DateTime<Utc>,
    /// The midnight at or before `from`, when the first day begins.
    pub midnight: DateTime<Utc>,
}

impl Span {
    /// The number of days it touches.
    pub fn days(self) -> usize {
        let last = self.to - TimeDelta::milliseconds(1) - self.midnight;
        usize::try_from(last.num_days()).map_or(0, |days| days + 1)
    }
}

/// The sums per day of the whole quarters that no midnight divides.
pub const QUARTERS: &str = "SELECT date_bin('1 day', starts_at, $2) AS day, sum(requests) AS requests, sum(tokens) AS tokens, \
            sum(model_cost) AS model_cost, sum(fee_amount) AS fee_amount, \
            sum(service_charge_amount) AS service_charge_amount, sum(total_request_cost) AS total_request_cost, \
            sum(total_wallet_cost) AS total_wallet_cost, sum(total_merchant_cost) AS total_merchant_cost \
     FROM {usage}.quarters \
     WHERE partition = $1 AND merchant_id = $3 AND customer_id = $4 AND meter_id = $5 AND starts_at >= $6 AND starts_at < $7 \
         AND date_bin('1 day', starts_at, $2) + interval '24 hours' >= starts_at + interval '15 minutes' \
     GROUP BY 1";

/// The counters of each day of `span`, those without requests included.
pub async fn daily(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    filter: &RequestFilter,
    span: Span,
) -> Result<Vec<Counters>, Error> {
    let mut days = vec![Counters::default(); span.days()];
    let one_by_one = match whole_quarters(span).filter(|_| filter.metadata.is_empty()) {
        None => vec![(span.from, span.to)],
        Some((first, last)) => {
            add_quarters(db, merchant_id, filter, (first, last), span.midnight, &mut days).await?;
            let mut pieces = vec![(span.from, first), (last, span.to)];
            pieces.extend(divided_quarters((first, last), span.midnight));
            pieces.retain(|(from, to)| from < to);
            pieces
        }
    };
    add_requests(db, merchant_id, filter, &one_by_one, span.midnight, &mut days).await?;
    Ok(days)
}

/// The start of the first whole quarter within `span` and the end of the last, if there is one.
fn whole_quarters(span: Span) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    let first = quarter(span.from + QUARTER - TimeDelta::milliseconds(1));
    let last = quarter(span.to);
    (first < last).then_some((first, last))
}

/// The quarters from `first` on and before `last` that a midnight divides: one per day where the offset is not a
/// multiple of a quarter.
fn divided_quarters(
    (first, last): (DateTime<Utc>, DateTime<Utc>),
    midnight: DateTime<Utc>,
) -> impl Iterator<Item = (DateTime<Utc>, DateTime<Utc>)> {
    let divides = quarter(midnight) != midnight;
    let quarters = (0..).map(move |day| quarter(midnight + TimeDelta::days(day)));
    let within =
        quarters.skip_while(move |start| *start < first).take_while(move |start| divides && *start < last);
    within.map(|start| (start, start + QUARTER))
}

async fn add_quarters(
    db: PartitionClient<'_>,
    merchant_id: MerchantId,
    filter: &RequestFilter,
    (first, last): (DateTime<Utc>, DateTime<Utc>),
    midnight: DateTime<Utc>,
    days: &mut [Counters],
) -> Result<(), Error> {
    let merchant = merchant_id.to_string();
    let customer = filter.connection_id.map(|id| id.to_string()).unwrap_or_default();
    let meter = filter.product_id.map(|id| id.to_string()).unwrap_or_default();
    let parameters =
        [instant(&midnight), text(&merchant), text(&customer), text(&meter), instant(&first), instant(&last)];
    for row in db.query(QUARTERS, &parameters).await? {
        Counters::add_day(&row, midnight, days)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: &str, to: &str, midnight: &str) -> Span {
        let [from, to, midnight] = [from, to, midnight].map(|text| text.parse().unwrap());
        Span { from, to, midnight }
    }

    #[test]
    fn a_span_ends_before_its_end() {
        let one = span("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-20T00:00:00Z");
        assert_eq!(one.days(), 1);
        let two = span("2026-11-20T23:00:00Z", "2026-11-21T00:00:00.001Z", "2026-11-20T00:00:00Z");
        assert_eq!(two.days(), 2);
    }

    #[test]
    fn only_quarters_within_the_span_are_whole() {
        let kathmandu = span("2026-11-20T18:15:00.001Z", "2026-11-21T18:20:00Z", "2026-11-20T18:15:00Z");
        let whole = whole_quarters(kathmandu).unwrap();
        assert_eq!(whole, ("2026-11-20T18:30:00Z".parse().unwrap(), "2026-11-21T18:15:00Z".parse().unwrap()));
        let short = span("2026-11-20T18:20:00Z", "2026-11-20T18:29:00Z", "2026-11-20T18:15:00Z");
        assert_eq!(whole_quarters(short), None);
    }

    #[test]
    fn an_odd_midnight_divides_one_quarter_a_day() {
        let odd = span("2026-11-20T18:20:00Z", "2026-11-23T18:12:00Z", "2026-11-20T18:10:00Z");
        let whole = whole_quarters(odd).unwrap();
        assert_eq!(whole, ("2026-11-20T18:30:00Z".parse().unwrap(), "2026-11-23T18:00:00Z".parse().unwrap()));
        let divided: Vec<_> = divided_quarters(whole, odd.midnight).collect();
        let quarters = ["2026-11-21T18:00:00Z", "2026-11-22T18:00:00Z"];
        let quarters = quarters.map(|start| start.parse::<DateTime<Utc>>().unwrap());
        assert_eq!(divided, quarters.map(|start| (start, start + QUARTER)));
        let even: DateTime<Utc> = "2026-11-20T18:15:00Z".parse().unwrap();
        assert_eq!(divided_quarters(whole, even).count(), 0);
    }
}
