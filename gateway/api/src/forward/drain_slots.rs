//! Drain slots bound the calls that go on after their callers have disconnected, in total and per merchant, so that one
//! merchant's disconnected callers do not use up the slots of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_core::ids::MerchantId;

/// Drain slots of a gateway.
const SLOTS: usize = 1_000;

/// The most slots that calls of one merchant take at once.
const SLOTS_PER_MERCHANT: usize = SLOTS / 10;

/// The drain slots of one gateway.
#[derive(Debug, Clone, Default)]
pub(super) struct DrainSlots(Arc<Mutex<Taken>>);

/// The number of slots taken, in total and by merchant.
#[derive(Debug, Default)]
struct Taken {
    total: usize,
    /// Holds no merchant without a slot.
    by_merchant: HashMap<MerchantId, usize>,
}

/// A taken slot; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct DrainSlot {
    slots: DrainSlots,
    merchant_id: MerchantId,
}

impl DrainSlots {
    /// Takes a slot for a call of this merchant; `None` if none is free.
    pub(super) fn take(&self, merchant_id: MerchantId) -> Option<DrainSlot> {
        let mut taken = self.lock();
        let of_merchant = taken.by_merchant.get(&merchant_id).copied().unwrap_or(0);
        if taken.total >= SLOTS || of_merchant >= SLOTS_PER_MERCHANT {
            return None;
        }
        taken.total += 1;
        taken.by_merchant.insert(merchant_id, of_merchant + 1);
        drop(taken);
        Some(DrainSlot { slots: self.clone(), merchant_id })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DrainSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.lock();
        taken.total -= 1;
        if let Some(of_merchant) = taken.by_merchant.get_mut(&self.merchant_id) {
            *of_merchant -= 1;
            if *of_merchant == 0 {
                taken.by_merchant.remove(&self.merchant_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merchant(number: usize) -> MerchantId {
        MerchantId::new(ulid::Ulid::from_parts(1, number as u128))
    }

    #[test]
    fn a_merchant_takes_at_most_a_tenth_of_the_slots() {
        let slots = DrainSlots::default();
        let mut first: Vec<_> = (0..SLOTS_PER_MERCHANT).map(|_| slots.take(merchant(1)).unwrap()).collect();
        assert!(slots.take(merchant(1)).is_none());
        assert!(slots.take(merchant(2)).is_some());
        first.pop();
        first.push(slots.take(merchant(1)).expect("a slot was freed"));
        assert!(slots.take(merchant(1)).is_none());
    }

    #[test]
    fn the_total_is_bounded_and_merchants_without_slots_are_forgotten() {
        let slots = DrainSlots::default();
        let all: Vec<_> = (0..SLOTS).map(|number| slots.take(merchant(number / 50)).unwrap()).collect();
        assert!(slots.take(merchant(SLOTS)).is_none());
        drop(all);
        assert!(slots.lock().by_merchant.is_empty());
        assert!(slots.take(merchant(SLOTS)).is_some());
        assert_eq!(slots.lock().total, 0);
    }
}
