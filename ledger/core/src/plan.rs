//! Plans: what a customer pays for every so often, and the credit that comes with it (completion.md section 8). A
//! subscription stands on the terms that its plan had when its cycle began.

use chrono::{DateTime, Days, Months, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{CreditBundleId, MeterId};
use crate::money::Amount;

/// How long a cycle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BillingInterval {
    /// 24 hours.
    Day,
    /// 7 times 24 hours.
    Week,
    /// A calendar month; its day is clamped to the end of a short one.
    Month,
    /// Twelve calendar months.
    Year,
}

impl BillingInterval {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// When cycle `number` begins, counted from 0 at `anchor`; the end of time where that is beyond it.
    ///
    /// Counting from the anchor itself keeps the 31st the 31st after a short month.
    pub fn cycle_start(self, anchor: DateTime<Utc>, number: u32) -> DateTime<Utc> {
        let start = match self {
            Self::Day => anchor.checked_add_days(Days::new(number.into())),
            Self::Week => anchor.checked_add_days(Days::new(u64::from(number) * 7)),
            Self::Month => anchor.checked_add_months(Months::new(number)),
            Self::Year => {
                number.checked_mul(12).and_then(|months| anchor.checked_add_months(Months::new(months)))
            }
        };
        start.unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// Days in a mean interval, times 10,000: makes prices of unlike intervals comparable.
    const fn mean_days_10k(self) -> i64 {
        match self {
            Self::Day => 10_000,
            Self::Week => 70_000,
            Self::Month => 304_375,
            Self::Year => 3_652_500,
        }
    }
}

/// What becomes of credit at the end of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Rollover {
    /// All that is left stays.
    Full,
    /// What is left expires.
    None,
}

/// What a plan takes and gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTerms {
    /// Its display name.
    pub name: String,
    /// What a cycle costs, in dollars; a free plan costs nothing.
    pub period_amount: Amount,
    /// The credit that a cycle brings, in dollars.
    pub included_credit: Amount,
    /// How long a cycle is.
    pub billing_interval: BillingInterval,
    /// What becomes of the credit that a cycle brought.
    pub rollover_type: Rollover,
    /// What becomes of bundle credit.
    pub bundle_rollover_type: Rollover,
    /// Only calls on these meters draw the credit; any call where there are none.
    pub meter_ids: Vec<MeterId>,
    /// The bundle that is bought when a new subscriber's credit is used up, unless the subscriber chooses otherwise.
    pub default_auto_top_up_bundle_id: Option<CreditBundleId>,
}

impl PlanTerms {
    /// Does it cost nothing?
    pub fn is_free(&self) -> bool {
        self.period_amount.is_zero()
    }

    /// Does it cost more in the same time than `other`?
    pub fn is_dearer_than(&self, other: &Self) -> bool {
        let in_the_time_of = |amount: Amount, interval: BillingInterval| {
            // At most 10^4 dollars by 10^7: far within the range of decimals.
            amount.decimal() * rust_decimal::Decimal::from(interval.mean_days_10k())
        };
        in_the_time_of(self.period_amount, other.billing_interval)
            > in_the_time_of(other.period_amount, self.billing_interval)
    }
}

/// One cycle of a subscription: `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillingCycle {
    /// Counts the cycles since the anchor, from 0.
    pub number: u32,
    /// When it began.
    pub start: DateTime<Utc>,
    /// When it ends and the next one begins.
    pub end: DateTime<Utc>,
}

impl BillingCycle {
    /// Cycle `number` of `interval`, counted from `anchor`.
    pub fn of(interval: BillingInterval, anchor: DateTime<Utc>, number: u32) -> Self {
        let start = interval.cycle_start(anchor, number);
        Self { number, start, end: interval.cycle_start(anchor, number.saturating_add(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_month_that_begins_on_the_31st_is_clamped_and_comes_back() {
        for (anchor, starts) in [
            (
                "2026-01-29T10:00:00Z",
                ["2026-02-28T10:00:00Z", "2026-03-29T10:00:00Z", "2026-04-29T10:00:00Z"],
            ),
            (
                "2026-01-30T10:00:00Z",
                ["2026-02-28T10:00:00Z", "2026-03-30T10:00:00Z", "2026-04-30T10:00:00Z"],
            ),
            (
                "2027-12-31T10:00:00Z",
                ["2028-01-31T10:00:00Z", "2028-02-29T10:00:00Z", "2028-03-31T10:00:00Z"],
            ),
        ] {
            for (number, start) in (1..).zip(starts) {
                let cycle = BillingCycle::of(BillingInterval::Month, at(anchor), number);
                assert_eq!(cycle.start, at(start), "{anchor} {number}");
                assert_eq!(BillingCycle::of(BillingInterval::Month, at(anchor), number - 1).end, cycle.start);
            }
        }
    }

    #[test]
    fn days_weeks_and_years_follow_one_another_without_a_gap() {
        let anchor = at("2024-02-29T23:59:59.999Z");
        for (interval, first, fourth) in [
            (BillingInterval::Day, "2024-03-01T23:59:59.999Z", "2024-03-04T23:59:59.999Z"),
            (BillingInterval::Week, "2024-03-07T23:59:59.999Z", "2024-03-28T23:59:59.999Z"),
            (BillingInterval::Year, "2025-02-28T23:59:59.999Z", "2028-02-29T23:59:59.999Z"),
        ] {
            assert_eq!(interval.cycle_start(anchor, 1), at(first), "{interval:?}");
            assert_eq!(interval.cycle_start(anchor, 4), at(fourth), "{interval:?}");
        }
        assert_eq!(BillingInterval::Year.cycle_start(anchor, u32::MAX), DateTime::<Utc>::MAX_UTC);
    }

    #[test]
    fn prices_of_unlike_intervals_are_compared_over_the_same_time() {
        let terms = |amount: &str, billing_interval| PlanTerms {
            name: "plan".into(),
            period_amount: amount.parse().unwrap(),
            included_credit: Amount::ZERO,
            billing_interval,
            rollover_type: Rollover::None,
            bundle_rollover_type: Rollover::None,
            meter_ids: Vec::new(),
            default_auto_top_up_bundle_id: None,
        };
        let ten_a_month = terms("10", BillingInterval::Month);
        assert!(ten_a_month.is_dearer_than(&terms("100", BillingInterval::Year)));
        assert!(!ten_a_month.is_dearer_than(&terms("121", BillingInterval::Year)));
        assert!(!ten_a_month.is_dearer_than(&terms("10", BillingInterval::Month)));
        assert!(terms("1", BillingInterval::Day).is_dearer_than(&ten_a_month));
        assert!(!terms("2", BillingInterval::Week).is_dearer_than(&ten_a_month));
    }
}
