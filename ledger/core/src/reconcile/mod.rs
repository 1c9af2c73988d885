//! Reconciliation: the log against itself, against the payment processor's list and against a provider's usage export.
//!
//! Invariant: every call, every payment and every row of a list is in exactly one class, and the totals of the classes add
//! up to the totals of what was read.

pub mod calls;
pub mod payments;
pub mod usage;

use rust_decimal::Decimal;
use serde::Serialize;

use crate::money::Error;

/// The class of a payment, or of a day and a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The log and the list say the same.
    Matched,
    /// Both have it, with other figures.
    Different,
    /// The list has it, the log has not.
    MissingInLog,
    /// The log has it, the list has not.
    MissingInList,
    /// The log has it, and the list need not: no money moved.
    NothingMoved,
    /// A failed try of a payment that the log has, beside its end. The log records the end alone.
    FailedTry,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 6] = [
        Self::Matched,
        Self::Different,
        Self::MissingInLog,
        Self::MissingInList,
        Self::NothingMoved,
        Self::FailedTry,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::Different => "different",
            Self::MissingInLog => "missing_in_log",
            Self::MissingInList => "missing_in_list",
            Self::NothingMoved => "nothing_moved",
            Self::FailedTry => "failed_try",
        }
    }

    /// Whether somebody must explain it.
    pub const fn is_a_difference(self) -> bool {
        match self {
            Self::Matched | Self::NothingMoved | Self::FailedTry => false,
            Self::Different | Self::MissingInLog | Self::MissingInList => true,
        }
    }
}

/// The exact sum; an error if it needs more than 28 digits.
pub fn exact_sum(one: Decimal, other: Decimal) -> Result<Decimal, Error> {
    let (one, other) = (one.normalize(), other.normalize());
    let sum = one.checked_add(other).ok_or(Error::OutOfRange)?;
    // A sum that does not fit is rounded to fewer digits.
    let is_exact = sum.is_zero() || sum.scale() >= one.scale().max(other.scale());
    if is_exact { Ok(sum.normalize()) } else { Err(Error::OutOfRange) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_exact_or_an_error() {
        let decimal = |text: &str| Decimal::from_str_exact(text).unwrap();
        assert_eq!(exact_sum(decimal("0.10"), decimal("0.2")), Ok(decimal("0.3")));
        assert_eq!(exact_sum(decimal("1.50"), decimal("-1.5")), Ok(Decimal::ZERO));
        assert_eq!(
            exact_sum(Decimal::ZERO, decimal("0.00000000000000000001")),
            Ok(decimal("0.00000000000000000001"))
        );
        let (large, small) = (decimal("9000000000000000000"), decimal("0.00000000000000000001"));
        assert_eq!(exact_sum(large, small), Err(Error::OutOfRange));
        assert_eq!(exact_sum(Decimal::MAX, Decimal::MAX), Err(Error::OutOfRange));
    }
}
