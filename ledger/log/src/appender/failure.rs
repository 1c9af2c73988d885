//! Failed attempts to append: the cause, and whether the batch may have been committed.

use super::Error;
use super::batch::{AppendBatch, EventId};
use super::job::Job;
use super::store::StoreError;

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the events since the checkpoint cannot be folded: {0}")]
    Tail(String),
    #[error("another gateway has taken over")]
    Fenced,
    /// The first job of the batch lacks states after as many loads as a batch may make.
    #[error("a decision needs more states than one batch may load")]
    TooManyLoads,
    #[error("Postgres does not answer")]
    Timeout,
    #[error("no connection: {0}")]
    Unreachable(StoreError),
    /// The job at this index of the batch panicked while it was decided.
    #[error("the decision of a command panicked: {message}")]
    Panicked { job: usize, message: String },
}

/// The commands that a failure can be blamed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// None: another leader has taken over, or the lease has to be checked.
    None,
    /// None: the store is away.
    Store,
    /// Perhaps one of the batch, which would fail again alone.
    AnyJob,
    /// This one of the batch.
    Job(usize),
}

impl Failure {
    /// The commands to blame, if nothing is in doubt.
    pub(super) fn blame(&self) -> Blame {
        match self {
            Self::Fenced => Blame::None,
            Self::Timeout | Self::Unreachable(_) => Blame::Store,
            Self::Store(_) | Self::Tail(_) => Blame::AnyJob,
            Self::TooManyLoads => Blame::Job(0),
            Self::Panicked { job, .. } => Blame::Job(*job),
        }
    }

    /// Answers a job that fails so in a batch of its own.
    pub(super) fn end(&self, job: Box<dyn Job>) {
        match self {
            Self::Store(StoreError::Unreadable(why)) => job.end_unreadable(why.clone()),
            failure => job.end(failure.answer()),
        }
    }

    /// The answer to a command that fails so in a batch of its own.
    pub(super) fn answer(&self) -> Error {
        let why = self.to_string();
        match self {
            // The same command would fail again.
            Self::Store(StoreError::Data(_)) | Self::TooManyLoads | Self::Panicked { .. } => {
                Error::Internal(why)
            }
            Self::Store(StoreError::Other(_) | StoreError::Conflict(_) | StoreError::Unreadable(_))
            | Self::Tail(_)
            | Self::Fenced
            | Self::Timeout
            | Self::Unreachable(_) => Error::Unavailable(why),
        }
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
            StoreError::Other(_) | StoreError::Conflict(_) | StoreError::Unreadable(_) => batch.first_event(),
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

    fn data() -> Failure {
        StoreError::Data(String::new()).into()
    }

    fn other() -> Failure {
        StoreError::Other(String::new()).into()
    }

    fn panicked() -> Failure {
        Failure::Panicked { job: 3, message: String::new() }
    }

    #[test]
    fn a_store_that_is_away_is_blamed_on_no_command() {
        assert_eq!(Failure::Timeout.blame(), Blame::Store);
        assert_eq!(Failure::Unreachable(StoreError::Other(String::new())).blame(), Blame::Store);
        for failure in [data(), other(), Failure::Tail(String::new())] {
            assert_eq!(failure.blame(), Blame::AnyJob, "{failure:?}");
        }
        assert_eq!(panicked().blame(), Blame::Job(3));
        assert_eq!(Failure::TooManyLoads.blame(), Blame::Job(0));
        assert_eq!(Failure::Fenced.blame(), Blame::None);
    }

    #[test]
    fn a_failure_that_would_repeat_is_internal() {
        for failure in [data(), Failure::TooManyLoads, panicked()] {
            assert!(matches!(failure.answer(), Error::Internal(_)), "{failure:?}");
        }
        for failure in [other(), Failure::Tail(String::new()), Failure::Timeout] {
            assert!(matches!(failure.answer(), Error::Unavailable(_)), "{failure:?}");
        }
    }

    #[test]
    fn a_failure_before_the_append_leaves_nothing_in_doubt() {
        assert_eq!(FailedAttempt::from(Failure::TooManyLoads).in_doubt, None);
    }
}
