//! Why there is no connection, where the reason is this crate's.

use std::time::Duration;

use crate::names::LookupError;

/// Why there is no connection, where the reason is this crate's. It stands in the source chain of the client's error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// At least one address of the host is not allowed.
    #[error("an address of the host is not allowed")]
    Forbidden,
    /// The host name does not resolve.
    #[error("the host name cannot be resolved: {0}")]
    Lookup(#[from] LookupError),
    /// Too many names are being looked up, for this party or for all.
    #[error("too many host names are being looked up")]
    TooManyLookups,
    /// Too many connections are open, of this party or of all.
    #[error("too many connections are open")]
    TooManyConnections,
    /// The connection was not established in time.
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
}

/// The error type of a connector.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
