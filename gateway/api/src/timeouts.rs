//! How long a gateway waits for others. Invariant: nobody outside can make it wait without end.

use std::time::Duration;

/// The bounds on waiting that an operator may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the head of a request, idle time on a kept connection included.
    pub head: Duration,
    /// For a body that is read whole, from its first byte to its last; for the next piece of one that streams.
    pub body: Duration,
    /// For a caller to take anything of an answer that is ready. Then the caller is taken for gone.
    pub stall: Duration,
    /// For a connection to a provider: its name, its address and TLS.
    pub connect: Duration,
    /// For a provider to begin its answer.
    pub answer: Duration,
    /// For a provider to go on with an answer it has begun.
    pub silence: Duration,
    /// For calls in flight when the gateway is told to stop.
    pub grace: Duration,
}
