//! Slots for lookups in flight, in total and per party, so that one party with slow names leaves slots to the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::party::Party;

/// The most lookups of a gateway in flight. Each takes up to 16 sockets.
pub(super) const LOOKUPS: usize = 256;

/// The most lookups of one party in flight.
pub(super) const LOOKUPS_PER_PARTY: usize = 32;

/// The lookups in flight.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    /// Holds no party without a lookup.
    by_party: HashMap<Party, usize>,
}

/// A lookup in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    party: Party,
}

impl Slots {
    /// A slot for a lookup of `party`; `None` if none is free.
    pub(super) fn take(&self, party: Party) -> Option<Slot> {
        let mut taken = self.lock();
        let of_party = taken.by_party.get(&party).copied().unwrap_or(0);
        if taken.total >= LOOKUPS || of_party >= LOOKUPS_PER_PARTY {
            return None;
        }
        taken.total += 1;
        taken.by_party.insert(party, of_party + 1);
        drop(taken);
        Some(Slot { slots: self.clone(), party })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.total -= 1;
        if let Some(of_party) = taken.by_party.get_mut(&self.party) {
            *of_party -= 1;
            if *of_party == 0 {
                taken.by_party.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_leaves_slots_to_the_others_and_all_together_have_a_bound() {
        let slots = Slots::default();
        let mut taken = Vec::new();
        for party in 0..LOOKUPS / LOOKUPS_PER_PARTY {
            let party = Party(party as u128);
            taken.extend((0..LOOKUPS_PER_PARTY).map(|_| slots.take(party).unwrap()));
            assert!(slots.take(party).is_none());
        }
        let last = Party(u128::MAX);
        assert!(slots.take(last).is_none());
        taken.pop();
        taken.push(slots.take(last).unwrap());
        taken.clear();
        assert!(slots.lock().by_party.is_empty());
        assert_eq!(slots.lock().total, 0);
    }
}
