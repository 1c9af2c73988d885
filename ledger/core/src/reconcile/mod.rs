//! Reconciliation: the log against itself, against the payment processor's list and against a provider's usage export.
//!
//! Invariant: every call, every payment and every row of a list is in exactly one class, and the totals of the classes add
//! up to the totals of what was read.

pub mod calls;
pub mod payments;
pub mod usage;

use serde::Serialize;

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
