//! Connections of callers that have not said who they are. There are few, and a further one closes the oldest: who only
//! holds connections keeps nobody out, since whoever sends a request at once is no stranger any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The connections of strangers.
#[derive(Debug)]
pub(super) struct Strangers {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By the order of their arrival.
    connections: BTreeMap<u64, CancellationToken>,
    arrived: u64,
}

/// A connection of a stranger, until it is introduced.
#[derive(Debug)]
struct Stranger {
    number: u64,
    strangers: Arc<Strangers>,
}

/// Introduces the caller of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Introduction(Arc<Stranger>);

impl Strangers {
    /// At most `most`.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// A new connection, and the token that is cancelled when it must be closed.
    pub(super) fn arrive(self: &Arc<Self>) -> (Introduction, CancellationToken) {
        let closed = CancellationToken::new();
        let mut open = self.open();
        let number = open.arrived;
        open.arrived += 1;
        open.connections.insert(number, closed.clone());
        let oldest = if open.connections.len() > self.most { open.connections.pop_first() } else { None };
        drop(open);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        (Introduction(Arc::new(Stranger { number, strangers: Arc::clone(self) })), closed)
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Introduction {
    /// From now on the caller is known.
    pub(crate) fn complete(&self) {
        let Stranger { number, strangers } = &*self.0;
        strangers.open().connections.remove(number);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.open().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_place_for_another_and_nobody_else_does() {
        let strangers = Strangers::new(2);
        let (known, known_closed) = strangers.arrive();
        known.complete();
        let (first, first_closed) = strangers.arrive();
        let (_second, second_closed) = strangers.arrive();
        assert!(!first_closed.is_cancelled());
        let (_third, third_closed) = strangers.arrive();
        assert!(first_closed.is_cancelled());
        drop(first);
        let (fourth, _closed) = strangers.arrive();
        assert!(second_closed.is_cancelled() && !third_closed.is_cancelled());
        drop(fourth);
        let (_fifth, _closed) = strangers.arrive();
        assert!(!third_closed.is_cancelled(), "what has ended counts no more");
        assert!(!known_closed.is_cancelled());
    }
}
