//! Calls that somebody must look at: open ones of dead gateways, ends without usage, charged holds, overruns.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event::{FailureReason, Hold, Mark, RequestFailed, RequestMetered};
use crate::money::{Amount, Error, Total};

/// The class of a call. A call with several remarks is in the class that is listed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallClass {
    /// Open, at a gateway that is not alive. It is swept when another gateway notices.
    OpenAtDeadGateway,
    /// Open, at a live gateway.
    InFlight,
    /// Ended uncharged, because its gateway died.
    Abandoned,
    /// Ended uncharged, because its settlement could not be appended.
    Unsettleable,
    /// The reported usage was not believed.
    UsageInvalid,
    /// Its usage did not become known, and its hold was charged.
    HoldCharged,
    /// The response was incomplete; the usage until then was charged.
    Partial,
    /// The provider reported no usage: zero units were counted.
    UsageMissing,
    /// Provider or caller left before any usage was reported. Not charged; the provider may bill it.
    EndedWithoutUsage,
    /// Metered and charged; the customer's wallet did not cover all of it.
    Overrun,
    /// Metered, without a remark.
    Metered,
    /// Not charged: the provider refused it, or was not reached.
    NotCharged,
}

impl CallClass {
    /// The class of a call that was metered.
    pub fn of_metered(metered: &RequestMetered) -> Self {
        let marked = |mark| metered.marks.contains(&mark);
        if marked(Mark::UsageInvalid) {
            Self::UsageInvalid
        } else if marked(Mark::HoldCharged) {
            Self::HoldCharged
        } else if marked(Mark::Partial) {
            Self::Partial
        } else if marked(Mark::UsageMissing) {
            Self::UsageMissing
        } else if marked(Mark::Overrun) || !metered.overrun.is_zero() {
            Self::Overrun
        } else {
            Self::Metered
        }
    }

    /// The class of a call that failed.
    pub const fn of_failed(failed: &RequestFailed) -> Self {
        match failed.reason {
            FailureReason::Abandoned => Self::Abandoned,
            FailureReason::Unsettleable => Self::Unsettleable,
            FailureReason::UsageInvalid => Self::UsageInvalid,
            FailureReason::ProviderGone | FailureReason::CallerGone => Self::EndedWithoutUsage,
            FailureReason::ProviderStatus
            | FailureReason::ProviderUnreachable
            | FailureReason::ProviderTimeout
            | FailureReason::AddressForbidden => Self::NotCharged,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAtDeadGateway => "open_at_dead_gateway",
            Self::InFlight => "in_flight",
            Self::Abandoned => "abandoned",
            Self::Unsettleable => "unsettleable",
            Self::UsageInvalid => "usage_invalid",
            Self::HoldCharged => "hold_charged",
            Self::Partial => "partial",
            Self::UsageMissing => "usage_missing",
            Self::EndedWithoutUsage => "ended_without_usage",
            Self::Overrun => "overrun",
            Self::Metered => "metered",
            Self::NotCharged => "not_charged",
        }
    }

    /// Whether calls of the class are listed. The others are only counted.
    pub const fn is_listed(self) -> bool {
        !matches!(self, Self::Metered | Self::NotCharged)
    }

    /// Whether somebody must look at a call of the class.
    pub const fn needs_attention(self) -> bool {
        self.is_listed() && !matches!(self, Self::InFlight)
    }
}

/// The money of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CallMoney {
    /// The hold of an open call, and of one that ended uncharged; zero of a metered one.
    pub hold: Amount,
    /// What was charged.
    pub charged: Amount,
    /// The part of it that the customer's wallet did not cover.
    pub overrun: Amount,
}

impl CallMoney {
    /// Of a call that is open or ended uncharged.
    pub fn held(hold: Hold) -> Result<Self, Error> {
        Ok(Self { hold: hold.total()?, ..Self::default() })
    }

    /// Of a metered call.
    pub const fn charged(metered: &RequestMetered) -> Self {
        Self { hold: Amount::ZERO, charged: metered.total_request_cost, overrun: metered.overrun }
    }
}

/// The sums of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CallTotals {
    /// The number of calls.
    pub count: u64,
    /// The sum of their holds.
    pub hold: Total,
    /// The sum of what was charged.
    pub charged: Total,
    /// The sum of overruns.
    pub overrun: Total,
}

impl CallTotals {
    fn add(&mut self, money: CallMoney) -> Result<(), Error> {
        self.count += 1;
        self.hold = self.hold.plus(money.hold)?;
        self.charged = self.charged.plus(money.charged)?;
        self.overrun = self.overrun.plus(money.overrun)?;
        Ok(())
    }
}

/// Counts calls by class.
#[derive(Debug, Default, Serialize)]
pub struct CallSums {
    /// The sums of each class that has a call.
    pub classes: BTreeMap<CallClass, CallTotals>,
    /// The sums of all calls, counted apart from the classes.
    pub total: CallTotals,
}

impl CallSums {
    /// Adds a call.
    pub fn add(&mut self, class: CallClass, money: CallMoney) -> Result<(), Error> {
        self.total.add(money)?;
        self.classes.entry(class).or_default().add(money)
    }

    /// Whether somebody must look at a call.
    pub fn needs_attention(&self) -> bool {
        self.classes.keys().any(|class| class.needs_attention())
    }

    /// Asserts that the classes add up to the total.
    pub fn assert_sums(&self) -> Result<(), Error> {
        let mut sum = CallTotals::default();
        for class in self.classes.values() {
            sum.count += class.count;
            sum.hold = sum.hold.and(class.hold)?;
            sum.charged = sum.charged.and(class.charged)?;
            sum.overrun = sum.overrun.and(class.overrun)?;
        }
        assert_eq!(sum, self.total, "every call is in one class");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_add_up_to_the_total() {
        let money = |hold: &str, charged: &str, overrun: &str| CallMoney {
            hold: hold.parse().unwrap(),
            charged: charged.parse().unwrap(),
            overrun: overrun.parse().unwrap(),
        };
        let mut sums = CallSums::default();
        sums.add(CallClass::InFlight, money("3", "0", "0")).unwrap();
        sums.add(CallClass::Metered, money("0", "1.5", "0")).unwrap();
        assert!(!sums.needs_attention());
        sums.add(CallClass::Overrun, money("0", "2", "0.0000000001")).unwrap();
        sums.add(CallClass::Overrun, money("0", "2", "1")).unwrap();
        sums.assert_sums().unwrap();
        assert!(sums.needs_attention());
        assert_eq!(sums.total.count, 4);
        assert_eq!(sums.classes[&CallClass::Overrun].count, 2);
        let shown = serde_json::to_value(&sums).unwrap();
        assert_eq!(shown["classes"]["overrun"]["overrun"], "1.0000000001");
        assert_eq!(shown["total"]["charged"], "5.5000000000");
    }

    #[test]
    fn only_what_somebody_must_see_is_listed() {
        assert!(CallClass::InFlight.is_listed() && !CallClass::InFlight.needs_attention());
        assert!(!CallClass::Metered.is_listed() && !CallClass::NotCharged.is_listed());
        assert!(CallClass::EndedWithoutUsage.needs_attention());
    }
}
