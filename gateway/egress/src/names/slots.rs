//! Slots for lookups in flight, divided among parties, so that those with slow names leave slots to the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_shares::{Division, Shares};

use crate::party::Party;

/// The most lookups of a gateway in flight. Each takes up to 16 sockets.
pub(super) const LOOKUPS: usize = 256;

/// The most lookups of one party in flight.
pub(super) const LOOKUPS_PER_PARTY: usize = 32;

/// The lookups in flight.
#[derive(Debug, Clone)]
pub(super) struct Slots(Arc<Mutex<Shares<Party>>>);

/// A lookup in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    party: Party,
}

impl Default for Slots {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Shares::new(Division::of(LOOKUPS, LOOKUPS_PER_PARTY)))))
    }
}

impl Slots {
    /// A slot for a lookup of `party`; `None` if none is free.
    pub(super) fn take(&self, party: Party) -> Option<Slot> {
        self.lock().take(party, 1).ok()?;
        Some(Slot { slots: self.clone(), party })
    }

    fn lock(&self) -> MutexGuard<'_, Shares<Party>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().give_back(&self.party, 1);
    }
}

#[cfg(test)]
mod tests {
    use farthing_shares::OWNERS_WITH_BASE;

    use super::*;

    #[test]
    fn parties_leave_slots_to_the_others() {
        let slots = Slots::default();
        let mut taken = Vec::new();
        for party in 0..OWNERS_WITH_BASE as u128 - 1 {
            let before = taken.len();
            taken.extend(std::iter::from_fn(|| slots.take(Party(party))));
            assert!(taken.len() - before <= LOOKUPS_PER_PARTY);
        }
        let last = slots.take(Party(u128::MAX));
        assert!(last.is_some() && taken.len() < LOOKUPS);
        drop((taken, last));
        assert_eq!(slots.lock().taken(), 0);
    }
}
