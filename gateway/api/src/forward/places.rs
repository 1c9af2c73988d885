//! Places for answers that are waited for, or read on, after their callers have gone. Invariant: they are bounded,
//! together and for each merchant, so that one merchant whose callers leave takes no place from another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_core::ids::MerchantId;

/// Places of a gateway.
const PLACES: usize = 1_000;

/// The most of them that calls of one merchant take at once.
const PLACES_PER_MERCHANT: usize = PLACES / 10;

/// The places of one gateway.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

/// Who has taken how many.
#[derive(Debug, Default)]
struct Taken {
    together: usize,
    /// No merchant without any stays here.
    by_merchant: HashMap<MerchantId, usize>,
}

/// A place, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    merchant_id: MerchantId,
}

impl Places {
    /// A place for a call of this merchant, if there is one.
    pub(super) fn take(&self, merchant_id: MerchantId) -> Option<Place> {
        let mut taken = self.lock();
        let of_merchant = taken.by_merchant.get(&merchant_id).copied().unwrap_or(0);
        if taken.together >= PLACES || of_merchant >= PLACES_PER_MERCHANT {
            return None;
        }
        taken.together += 1;
        taken.by_merchant.insert(merchant_id, of_merchant + 1);
        drop(taken);
        Some(Place { places: self.clone(), merchant_id })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.together -= 1;
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
    fn a_merchant_has_a_tenth_of_the_places_and_leaves_the_others_theirs() {
        let places = Places::default();
        let mut first: Vec<_> = (0..PLACES_PER_MERCHANT).map(|_| places.take(merchant(1)).unwrap()).collect();
        assert!(places.take(merchant(1)).is_none());
        assert!(places.take(merchant(2)).is_some());
        first.pop();
        first.push(places.take(merchant(1)).expect("one came free"));
        assert!(places.take(merchant(1)).is_none());
    }

    #[test]
    fn all_merchants_together_have_no_more_than_all_places_and_none_is_remembered_without_one() {
        let places = Places::default();
        let all: Vec<_> = (0..PLACES).map(|number| places.take(merchant(number / 50)).unwrap()).collect();
        assert!(places.take(merchant(PLACES)).is_none());
        drop(all);
        assert!(places.lock().by_merchant.is_empty());
        assert!(places.take(merchant(PLACES)).is_some());
        assert_eq!(places.lock().together, 0);
    }
}
