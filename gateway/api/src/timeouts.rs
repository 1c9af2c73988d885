//! The timeouts of a gateway. Invariant: no caller or provider can make it wait without a bound.

use std::time::Duration;

/// The timeouts that an operator can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The time to receive the head of a request, including idle time on a kept-alive connection.
    pub head: Duration,
    /// The time to receive a body that is read whole, or the next piece of a streamed one.
    pub body: Duration,
    /// The time for a caller to read any part of an answer. Afterwards the caller counts as disconnected.
    pub stall: Duration,
    /// The time to connect to a provider, including name resolution and TLS.
    pub connect: Duration,
    /// The time for a provider to begin its answer.
    pub answer: Duration,
    /// The time for a provider to send the next part of its answer.
    pub silence: Duration,
    /// The time for open calls to end at shutdown.
    pub grace: Duration,
}
