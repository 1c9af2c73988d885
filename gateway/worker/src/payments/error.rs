//! The errors of payments.

use farthing_core::command::Refusal;
use farthing_log::appender;
use farthing_log::{reader, reads};

/// The instance has no payment processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the instance has no payment processor")]
pub struct NoProcessor;

/// Why a payment has no outcome yet.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger refused the command.
    #[error(transparent)]
    Refused(Refusal),
    /// Postgres or the payment processor is unavailable.
    #[error("{0}")]
    Unavailable(String),
    /// Nothing can be charged.
    #[error(transparent)]
    NoProcessor(#[from] NoProcessor),
    /// Too many commands wait for the ledger.
    #[error("too many commands wait for the ledger")]
    Overloaded,
    /// The log or a state contradicts the payment.
    #[error("{0}")]
    Internal(String),
}

impl From<appender::Error> for Error {
    fn from(error: appender::Error) -> Self {
        match error {
            appender::Error::Refused(refusal) => Self::Refused(refusal),
            appender::Error::Unavailable(why) | appender::Error::Unknown(why) => Self::Unavailable(why),
            appender::Error::Moved => Self::Unavailable(error.to_string()),
            appender::Error::Internal(why) => Self::Internal(why),
            appender::Error::Overloaded => Self::Overloaded,
        }
    }
}

impl From<reads::Error> for Error {
    fn from(error: reads::Error) -> Self {
        match error {
            reads::Error::Unavailable(why) => Self::Unavailable(why),
            reads::Error::Overloaded => Self::Overloaded,
            reads::Error::Internal(why) => Self::Internal(why),
        }
    }
}

impl From<reader::Error> for Error {
    fn from(error: reader::Error) -> Self {
        reads::Error::from(error).into()
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        reads::Error::from(error).into()
    }
}
