//! Drain slots bound the calls that go on after their callers have disconnected: in total, per merchant, and per customer
//! or spend key, so that disconnected callers of one of them do not use up the slots of others. When all are taken, they
//! are shared: a merchant's among its takers, the gateway's among the merchants.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_core::ids::{CustomerId, MerchantId, SpendKeyId};
use tokio_util::sync::CancellationToken;

/// Drain slots of a gateway.
const SLOTS: usize = 1_000;

/// The most slots that calls of one merchant take at once.
const SLOTS_PER_MERCHANT: usize = SLOTS / 10;

/// The most slots of a merchant that calls of one customer, or of one spend key without a customer, take at once.
const SLOTS_PER_DRAINER: usize = SLOTS_PER_MERCHANT / 5;

/// Whose call takes a slot, of those who share the slots of a merchant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Drainer {
    /// A customer, by whatever key.
    Customer(CustomerId),
    /// A spend key of the merchant's own.
    SpendKey(SpendKeyId),
    /// The merchant itself, which may take all its slots.
    Merchant,
}

/// The drain slots of one gateway.
#[derive(Debug, Clone, Default)]
pub(super) struct DrainSlots(Arc<Mutex<Taken>>);

/// The slots taken, by taker, and the number of each merchant's. The maps hold nobody without a slot.
#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_merchant: HashMap<MerchantId, usize>,
    /// The slots of each taker, the oldest first.
    by_drainer: HashMap<(MerchantId, Drainer), VecDeque<Slot>>,
    /// The number of the next slot.
    next: u64,
}

/// A slot in the table of its taker.
#[derive(Debug)]
struct Slot {
    number: u64,
    revoked: CancellationToken,
}

/// A taken slot; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct DrainSlot {
    slots: DrainSlots,
    merchant_id: MerchantId,
    drainer: Drainer,
    number: u64,
    revoked: CancellationToken,
}

impl DrainSlots {
    /// Takes a slot for a call. If all slots of the merchant, or of the gateway, are taken, whoever has the most loses its
    /// oldest to one who has at least two less. `None` if none is free.
    pub(super) fn take(&self, merchant_id: MerchantId, drainer: Drainer) -> Option<DrainSlot> {
        let most_of_drainer = match drainer {
            Drainer::Customer(_) | Drainer::SpendKey(_) => SLOTS_PER_DRAINER,
            Drainer::Merchant => SLOTS_PER_MERCHANT,
        };
        let mut taken = self.lock();
        let of_drainer = taken.by_drainer.get(&(merchant_id, drainer)).map_or(0, VecDeque::len);
        let of_merchant = taken.by_merchant.get(&merchant_id).copied().unwrap_or(0);
        if of_drainer >= most_of_drainer {
            return None;
        }
        if of_merchant >= SLOTS_PER_MERCHANT {
            taken.revoke_of(merchant_id, of_drainer + 2)?;
        } else if taken.total >= SLOTS {
            let (largest, count) = taken.by_merchant.iter().max_by_key(|(_, count)| **count)?;
            let (largest, is_fairer) = (*largest, *count > of_merchant + 1);
            is_fairer.then(|| taken.revoke_of(largest, 1))??;
        }
        let (number, revoked) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.total += 1;
        *taken.by_merchant.entry(merchant_id).or_default() += 1;
        let own = taken.by_drainer.entry((merchant_id, drainer)).or_default();
        own.push_back(Slot { number, revoked: revoked.clone() });
        drop(taken);
        Some(DrainSlot { slots: self.clone(), merchant_id, drainer, number, revoked })
    }

    /// The number of slots that are taken.
    pub(super) fn taken(&self) -> f64 {
        u32::try_from(self.lock().total).map_or(f64::INFINITY, f64::from)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Revokes the oldest slot of the merchant's taker with the most, if that has at least `least`.
    fn revoke_of(&mut self, merchant_id: MerchantId, least: usize) -> Option<()> {
        let of_merchant = self.by_drainer.iter().filter(|((owner, _), _)| *owner == merchant_id);
        let (owner, slots) = of_merchant.max_by_key(|(_, slots)| slots.len())?;
        let slot = slots.front().filter(|_| slots.len() >= least)?;
        slot.revoked.cancel();
        let (owner, number) = (*owner, slot.number);
        self.free(owner, number);
        Some(())
    }

    /// Frees a slot, unless it was revoked.
    fn free(&mut self, owner: (MerchantId, Drainer), number: u64) {
        let Some(slots) = self.by_drainer.get_mut(&owner) else { return };
        let Some(at) = slots.iter().position(|slot| slot.number == number) else { return };
        slots.remove(at);
        if slots.is_empty() {
            self.by_drainer.remove(&owner);
        }
        self.total -= 1;
        if let Some(count) = self.by_merchant.get_mut(&owner.0) {
            *count -= 1;
            if *count == 0 {
                self.by_merchant.remove(&owner.0);
            }
        }
    }
}

impl DrainSlot {
    /// Resolves once the slot is given to another taker.
    pub(super) async fn revoked(&self) {
        self.revoked.cancelled().await;
    }
}

impl Drop for DrainSlot {
    fn drop(&mut self) {
        self.slots.lock().free((self.merchant_id, self.drainer), self.number);
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn ulid(number: usize) -> Ulid {
        Ulid::from_parts(1, number as u128)
    }

    fn take(slots: &DrainSlots, merchant: usize) -> Option<DrainSlot> {
        slots.take(MerchantId::new(ulid(merchant)), Drainer::Merchant)
    }

    #[test]
    fn a_merchant_takes_at_most_a_tenth_of_the_slots() {
        let slots = DrainSlots::default();
        let mut first: Vec<_> = (0..SLOTS_PER_MERCHANT).map(|_| take(&slots, 1).unwrap()).collect();
        assert!(take(&slots, 1).is_none());
        assert!(take(&slots, 2).is_some());
        first.pop();
        first.push(take(&slots, 1).expect("a slot was freed"));
        assert!(take(&slots, 1).is_none());
    }

    #[test]
    fn a_customer_or_spend_key_takes_at_most_a_fifth_of_its_merchants_slots() {
        let merchant = MerchantId::new(ulid(1));
        let customer = Drainer::Customer(CustomerId::new(ulid(1)));
        let spend_key = Drainer::SpendKey(SpendKeyId::new(ulid(1)));
        let slots = DrainSlots::default();
        let mut all = Vec::new();
        for drainer in [customer, spend_key] {
            all.extend((0..SLOTS_PER_DRAINER).map(|_| slots.take(merchant, drainer).unwrap()));
            assert!(slots.take(merchant, drainer).is_none());
        }
        assert!(slots.take(MerchantId::new(ulid(2)), customer).is_some(), "another merchant's");
        all.pop();
        assert!(slots.take(merchant, spend_key).is_some(), "a slot was freed");
        assert!(slots.take(merchant, customer).is_none());
    }

    fn is_revoked(slot: &DrainSlot) -> bool {
        slot.revoked.is_cancelled()
    }

    #[test]
    fn the_slots_of_a_merchant_are_shared_by_those_who_ask_for_them() {
        let merchant = MerchantId::new(ulid(1));
        let customer = |number| Drainer::Customer(CustomerId::new(ulid(number)));
        let slots = DrainSlots::default();
        // Five customers take all.
        let mut crowd = Vec::new();
        for number in 0..5 {
            crowd.extend((0..SLOTS_PER_DRAINER).map(|_| slots.take(merchant, customer(number)).unwrap()));
        }
        let mut late: Vec<_> = (0..16).map(|_| slots.take(merchant, customer(5)).unwrap()).collect();
        assert_eq!(crowd.iter().filter(|slot| is_revoked(slot)).count(), 16);
        assert!(!late.iter().any(is_revoked), "whoever has the most loses");
        for of_one in crowd.chunks(SLOTS_PER_DRAINER) {
            let revoked = of_one.iter().filter(|slot| is_revoked(slot)).count();
            assert!((3..=4).contains(&revoked), "each loses as much: {revoked}");
            assert!(of_one[..revoked].iter().all(is_revoked), "its oldest");
        }
        // It has as many as the others now, and nothing is gained by an exchange.
        assert!(slots.take(merchant, customer(5)).is_none());
        crowd.retain(|slot| !is_revoked(slot));
        assert_eq!((slots.lock().total, crowd.len()), (SLOTS_PER_MERCHANT, SLOTS_PER_MERCHANT - 16));
        late.pop();
        assert!(slots.take(merchant, customer(5)).is_some(), "a slot was freed");
        drop((crowd, late));
        assert_eq!(slots.lock().total, 0);
    }

    #[test]
    fn the_slots_of_a_gateway_are_shared_by_its_merchants() {
        let slots = DrainSlots::default();
        let crowd: Vec<_> = (0..SLOTS).map(|at| take(&slots, at / SLOTS_PER_MERCHANT).unwrap()).collect();
        let late: Vec<_> = (0..50).map(|_| take(&slots, 1_000).unwrap()).collect();
        assert_eq!(crowd.iter().filter(|slot| is_revoked(slot)).count(), 50);
        assert!(!late.iter().any(is_revoked));
        assert_eq!(slots.lock().total, SLOTS);
    }

    #[test]
    fn the_total_is_bounded_and_takers_without_slots_are_forgotten() {
        let slots = DrainSlots::default();
        let all: Vec<_> = (0..SLOTS).map(|number| take(&slots, number).unwrap()).collect();
        assert!(take(&slots, SLOTS).is_none());
        drop(all);
        assert!(slots.lock().by_merchant.is_empty() && slots.lock().by_drainer.is_empty());
        assert!(take(&slots, SLOTS).is_some());
        assert_eq!(slots.lock().total, 0);
    }
}
