//! The report of usage. Invariant: the items sum to the totals exactly.

#![expect(clippy::struct_field_names, reason = "the interface names the fields")]

use chrono::{DateTime, Days, FixedOffset, NaiveDate, SecondsFormat};
use farthing_core::money::Amount;
use farthing_core::wide_sum::WideSum;
use farthing_projector::usage::Counters;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::rest::body::ExactNumber;

/// The counters of each day, and the totals.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::rest) struct Usage {
    #[schema(value_type = DateTime<FixedOffset>)]
    start: Local,
    #[schema(value_type = DateTime<FixedOffset>)]
    end: Local,
    items: Vec<Item>,
    totals: Shown,
}

/// A day.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageItem)]
struct Item {
    date: NaiveDate,
    #[serde(flatten)]
    counters: Shown,
}

/// Counters with their older and newer names.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageCounters)]
struct Shown {
    total_requests: i64,
    total_usage_tokens: ExactNumber,
    #[schema(value_type = Amount)]
    total_cost: WideSum,
    #[schema(value_type = Amount)]
    total_charge: WideSum,
    #[schema(value_type = Amount)]
    total_usage_cost: WideSum,
    #[schema(value_type = Amount)]
    total_fee_amount: WideSum,
    #[schema(value_type = Amount)]
    total_service_charge_amount: WideSum,
    #[schema(value_type = Amount)]
    total_request_cost: WideSum,
    #[schema(value_type = Amount)]
    total_wallet_cost: WideSum,
    #[schema(value_type = Amount)]
    total_merchant_cost: WideSum,
}

/// An instant in the offset of `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Local(DateTime<FixedOffset>);

impl Serialize for Local {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Usage {
    /// The report of `days` from `start` to `end`, or `None` if a sum is out of range.
    pub(super) fn of(
        start: DateTime<FixedOffset>,
        end: DateTime<FixedOffset>,
        days: &[Counters],
    ) -> Option<Self> {
        let totals = days.iter().try_fold(Counters::default(), |sum, day| sum.plus(day))?;
        let dates = (0..).map_while(|number| start.date_naive().checked_add_days(Days::new(number)));
        let items = dates.zip(days).map(|(date, counters)| Item { date, counters: counters.into() });
        Some(Self { start: Local(start), end: Local(end), items: items.collect(), totals: (&totals).into() })
    }
}

impl From<&Counters> for Shown {
    fn from(counters: &Counters) -> Self {
        Self {
            total_requests: counters.requests,
            total_usage_tokens: ExactNumber(counters.tokens),
            total_cost: counters.model_cost,
            total_charge: counters.fee_amount,
            total_usage_cost: counters.model_cost,
            total_fee_amount: counters.fee_amount,
            total_service_charge_amount: counters.service_charge_amount,
            total_request_cost: counters.total_request_cost,
            total_wallet_cost: counters.total_wallet_cost,
            total_merchant_cost: counters.total_merchant_cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use rust_decimal::Decimal;

    use super::*;

    #[test]
    fn days_follow_on_each_other_and_sum_to_the_totals() {
        let day = |fee: &str| {
            let fee: Decimal = fee.parse().unwrap();
            Counters { requests: 1, fee_amount: fee.try_into().unwrap(), ..Counters::default() }
        };
        let start = DateTime::parse_from_rfc3339("2026-02-28T23:00:00+05:45").unwrap();
        let days = vec![day("0.0000000001"), Counters::default(), day("9000000000000000000")];
        let shown = serde_json::to_value(Usage::of(start, start, &days).unwrap()).unwrap();
        let dates: Vec<_> = shown["items"].as_array().unwrap().iter().map(|item| &item["date"]).collect();
        assert_eq!(dates, ["2026-02-28", "2026-03-01", "2026-03-02"]);
        assert_eq!(shown["items"][1]["total_fee_amount"], "0.0000000000");
        assert_eq!(shown["totals"]["total_charge"], "9000000000000000000.0000000001");
        assert_eq!(shown["totals"]["total_requests"], 2);
        assert_eq!(shown["start"], "2026-02-28T23:00:00.000+05:45");
    }
}
