//! The timeouts of a gateway. Invariant: no caller or provider can make it wait without a bound.

use std::time::Duration;

/// The timeouts that an operator can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the head of a request, including idle time on a kept-alive connection.
    pub head: Duration,
    /// For a whole body that is read at once; for the next piece of a streamed one.
    pub body: Duration,
    /// For a caller to read any part of an answer. After it the caller counts as disconnected.
    pub stall: Duration,
    /// For a connection to a provider, including name resolution and TLS.
    pub connect: Duration,
    /// For a provider to begin its answer.
    pub answer: Duration,
    /// For a provider to send the next part of its answer.
    pub silence: Duration,
    /// For calls in flight at shutdown.
    pub grace: Duration,
}
