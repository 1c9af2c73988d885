//! Slots for work in flight, divided among its owners. A slot is given back when it is dropped.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Division, Shares};

/// The work in flight.
#[derive(Debug)]
pub struct Slots<O: Eq + Hash>(Arc<Mutex<Shares<O>>>);

/// A piece of work in flight, until it is dropped.
#[derive(Debug)]
pub struct Slot<O: Eq + Hash> {
    slots: Slots<O>,
    owner: O,
}

impl<O: Eq + Hash> Clone for Slots<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: Copy + Eq + Hash> Slots<O> {
    /// As many slots as `division` divides.
    pub fn new(division: Division) -> Self {
        Self(Arc::new(Mutex::new(Shares::new(division))))
    }

    /// A slot for work of `owner`; `None` if none is free for it.
    pub fn take(&self, owner: O) -> Option<Slot<O>> {
        self.lock().take(owner, 1).ok()?;
        Some(Slot { slots: self.clone(), owner })
    }
}

impl<O: Eq + Hash> Slots<O> {
    fn lock(&self) -> MutexGuard<'_, Shares<O>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Eq + Hash> Drop for Slot<O> {
    fn drop(&mut self) {
        self.slots.lock().give_back(&self.owner, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OWNERS_WITH_BASE;

    #[test]
    fn owners_leave_slots_to_the_others() {
        let (all, of_one) = (256, 32);
        let slots = Slots::new(Division::of(all, of_one));
        let mut taken = Vec::new();
        for owner in 0..OWNERS_WITH_BASE - 1 {
            let before = taken.len();
            taken.extend(std::iter::from_fn(|| slots.take(owner)));
            assert!(taken.len() - before <= of_one);
        }
        let last = slots.take(usize::MAX);
        assert!(last.is_some() && taken.len() < all);
        drop((taken, last));
        assert_eq!(slots.lock().taken(), 0);
    }
}
