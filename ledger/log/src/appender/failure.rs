//! Failed attempts to append: the cause, and whether the batch may have been committed.

use tokio_postgres::error::SqlState;

use super::batch::AppendBatch;
use crate::connect::redacted;
use crate::states;

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error(transparent)]
    States(#[from] states::Error),
    #[error("the events of other writers cannot be applied: {0}")]
    CatchUp(String),
    #[error("a decision needs more states than one batch may load")]
    TooManyLoads,
    #[error("Postgres does not answer")]
    Timeout,
}

impl Failure {
    /// Whether the data of one command caused it, so that the others can go on without that command. These are the
    /// SQLSTATE classes 22 (data), 23 (constraints), 42 (access rules) and 54 (limits).
    pub(super) fn is_caused_by_data(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        error.code().is_some_and(is_about_data)
    }
}

fn is_about_data(code: &SqlState) -> bool {
    ["22", "23", "42", "54"].iter().any(|class| code.code().starts_with(class))
}

/// A failed attempt.
pub(super) struct FailedAttempt {
    pub(super) failure: Failure,
    /// The key of a fact of the batch, if the batch may have been committed; `None` if it certainly was not.
    pub(super) in_doubt: Option<String>,
}

impl FailedAttempt {
    /// The failure of the append or the commit of `batch`. An error that Postgres reports about the data means that
    /// nothing was written; a fact of the same key may be in the log from before. After every other error the batch may
    /// have been committed.
    pub(super) fn of_append(error: tokio_postgres::Error, batch: &AppendBatch) -> Self {
        let failure = Failure::from(error);
        let in_doubt = if failure.is_caused_by_data() { None } else { batch.keys.first().cloned() };
        Self { failure, in_doubt }
    }
}

impl<F: Into<Failure>> From<F> for FailedAttempt {
    fn from(failure: F) -> Self {
        Self { failure: failure.into(), in_doubt: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_the_data_are_blamed_on_a_command() {
        for code in [SqlState::UNIQUE_VIOLATION, SqlState::NUMERIC_VALUE_OUT_OF_RANGE] {
            assert!(is_about_data(&code), "{code:?}");
        }
        for code in [SqlState::ADMIN_SHUTDOWN, SqlState::CONNECTION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED]
        {
            assert!(!is_about_data(&code), "{code:?}");
        }
        assert!(!Failure::Timeout.is_caused_by_data());
    }

    #[test]
    fn a_failure_before_the_append_leaves_nothing_in_doubt() {
        assert_eq!(FailedAttempt::from(Failure::TooManyLoads).in_doubt, None);
    }
}
