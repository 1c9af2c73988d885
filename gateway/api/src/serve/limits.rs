//! The limits of a gateway's connections and calls in flight.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much a gateway takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// The most connections of callers. Further ones wait until they are accepted.
    pub connections: usize,
    /// The most calls in flight. Further ones are answered with 503 at once.
    pub calls: usize,
}

/// A call in flight, until all its copies are dropped.
#[derive(Debug, Clone)]
pub(crate) struct CallInFlight {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// The calls in flight.
#[derive(Debug, Clone)]
pub(super) struct CallsInFlight(Arc<Semaphore>);

impl CallsInFlight {
    /// At most `most` calls.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Another call; `None` if there are too many.
    pub(super) fn begin(&self) -> Option<CallInFlight> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(CallInFlight { _permit: Arc::new(permit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_with_its_last_copy() {
        let calls = CallsInFlight::new(1);
        let first = calls.begin().unwrap();
        let copy = first.clone();
        drop(first);
        assert!(calls.begin().is_none());
        drop(copy);
        assert!(calls.begin().is_some());
    }
}
