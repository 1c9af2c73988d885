//! Failed attempts to append: the cause, and whether the batch may have been committed.

use super::batch::{AppendBatch, EventId};
use super::store::StoreError;

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the events of other writers cannot be applied: {0}")]
    CatchUp(String),
    #[error("a decision needs more states than one batch may load")]
    TooManyLoads,
    #[error("Postgres does not answer")]
    Timeout,
}

impl Failure {
    /// Whether the data of one command caused it, so that the others can go on without that command.
    pub(super) fn is_caused_by_data(&self) -> bool {
        matches!(self, Self::Store(StoreError::Data(_)))
    }
}

/// A failed attempt.
pub(super) struct FailedAttempt {
    pub(super) failure: Failure,
    /// The first event of the batch, if the batch may have been committed; `None` if it certainly was not.
    pub(super) in_doubt: Option<EventId>,
}

impl FailedAttempt {
    /// The failure of the append or the commit of `batch`. An error that the store reports about the data means that
    /// nothing was written. After every other error the batch may have been committed.
    pub(super) fn of_append(error: StoreError, batch: &AppendBatch) -> Self {
        let in_doubt = match &error {
            StoreError::Data(_) => None,
            StoreError::Other(_) => batch.first_event(),
        };
        Self { failure: error.into(), in_doubt }
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
    fn only_a_refusal_of_the_data_is_blamed_on_a_command() {
        assert!(Failure::from(StoreError::Data(String::new())).is_caused_by_data());
        assert!(!Failure::from(StoreError::Other(String::new())).is_caused_by_data());
        assert!(!Failure::Timeout.is_caused_by_data());
    }

    #[test]
    fn a_failure_before_the_append_leaves_nothing_in_doubt() {
        assert_eq!(FailedAttempt::from(Failure::TooManyLoads).in_doubt, None);
    }
}
