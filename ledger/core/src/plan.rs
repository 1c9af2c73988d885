//! Plans: a recurring price and the credit that it includes (completion.md section 8). Each cycle of a subscription
//! uses the terms that its plan had when the cycle began.

use chrono::{DateTime, Days, Months, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{CreditBundleId, MeterId};
use crate::money::Amount;

/// The length of a cycle.
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
    /// All intervals.
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// The start of cycle `number`, counted from 0 at `anchor`, capped at the largest representable instant.
    ///
    /// Counting from the anchor keeps the 31st the 31st after a short month.
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

    /// Mean days in the interval, times 10,000, to compare prices of different intervals.
    const fn mean_days_10k(self) -> i64 {
        match self {
            Self::Day => 10_000,
            Self::Week => 70_000,
            Self::Month => 304_375,
            Self::Year => 3_652_500,
        }
    }
}

/// What happens to unused credit at the end of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Rollover {
    /// It rolls over.
    Full,
    /// It expires.
    None,
}

/// The price and the credit of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTerms {
    /// Its display name.
    pub name: String,
    /// The price of a cycle, in dollars; zero for a free plan.
    pub period_amount: Amount,
    /// The credit that a cycle grants, in dollars.
    pub included_credit: Amount,
    /// The length of a cycle.
    pub billing_interval: BillingInterval,
    /// What happens to the plan's unused credit at the end of a cycle.
    pub rollover_type: Rollover,
    /// What happens to unused bundle credit at the end of a cycle.
    pub bundle_rollover_type: Rollover,
    /// Only calls on these meters draw the credit; every call does if the list is empty.
    pub meter_ids: Vec<MeterId>,
    /// The bundle that a new subscriber buys automatically when the credit is used up, unless the subscriber chooses
    /// another one.
    pub default_auto_top_up_bundle_id: Option<CreditBundleId>,
}

impl PlanTerms {
    /// Returns true if the plan has no price.
    pub fn is_free(&self) -> bool {
        self.period_amount.is_zero()
    }

    /// Returns true if the plan costs more than `other` over the same time.
    pub fn costs_more_than(&self, other: &Self) -> bool {
        let over = |amount: Amount, interval: BillingInterval| {
            // At most 10^4 dollars times 10^7: well within the range of decimals.
            amount.decimal() * rust_decimal::Decimal::from(interval.mean_days_10k())
        };
        over(self.period_amount, other.billing_interval) > over(other.period_amount, self.billing_interval)
    }
}

/// One cycle of a subscription: `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BillingCycle {
    /// Counts the cycles since the anchor, from 0.
    pub number: u32,
    /// The start.
    pub start: DateTime<Utc>,
    /// The end, where the next cycle starts.
    pub end: DateTime<Utc>,
}

impl BillingCycle {
    /// Cycle `number` of `interval`, counted from `anchor`.
    pub fn of(interval: BillingInterval, anchor: DateTime<Utc>, number: u32) -> Self {
        let start = interval.cycle_start(anchor, number);
        Self { number, start, end: interval.cycle_start(anchor, number.saturating_add(1)) }
    }

    /// The first cycle from `number` on that ends after `at`. It is searched for in halves: a merchant in test mode can be
    /// many cycles ahead.
    pub fn ending_after(
        interval: BillingInterval,
        anchor: DateTime<Utc>,
        number: u32,
        at: DateTime<Utc>,
    ) -> Self {
        let (mut first, mut last) = (number, u32::MAX);
        while first < last {
            let middle = u32::midpoint(first, last);
            if Self::of(interval, anchor, middle).end > at {
                last = middle;
            } else {
                first = middle + 1;
            }
        }
        Self::of(interval, anchor, first)
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
    fn the_first_cycle_that_ends_after_an_instant_is_found() {
        let anchor = at("2024-01-31T10:00:00Z");
        for interval in BillingInterval::ALL {
            for number in 0..40 {
                let cycle = BillingCycle::of(interval, anchor, number);
                let found = |from, at| BillingCycle::ending_after(interval, anchor, from, at);
                assert_eq!(found(0, cycle.start), cycle, "{interval:?}: it begins then");
                assert_eq!(found(0, cycle.end).number, number + 1, "{interval:?}: it has ended then");
                assert_eq!(
                    found(number + 5, cycle.start).number,
                    number + 5,
                    "{interval:?}: none before the first"
                );
            }
            let late = at("9000-01-01T00:00:00Z");
            let cycle = BillingCycle::ending_after(interval, anchor, 0, late);
            assert!(cycle.start <= late && late < cycle.end, "{interval:?}");
        }
    }

    #[test]
    fn prices_of_different_intervals_are_compared_over_the_same_time() {
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
        assert!(ten_a_month.costs_more_than(&terms("100", BillingInterval::Year)));
        assert!(!ten_a_month.costs_more_than(&terms("121", BillingInterval::Year)));
        assert!(!ten_a_month.costs_more_than(&terms("10", BillingInterval::Month)));
        assert!(terms("1", BillingInterval::Day).costs_more_than(&ten_a_month));
        assert!(!terms("2", BillingInterval::Week).costs_more_than(&ten_a_month));
    }
}
