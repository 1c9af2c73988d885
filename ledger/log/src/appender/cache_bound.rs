//! How much of the states a leader keeps in memory, and how many it loads at once.

use std::collections::HashSet;

use farthing_core::state::{CacheSize, StateCache, StateKey};

const MIB: usize = 1024 * 1024;

/// The states in memory above which they are shrunk, and what they are shrunk to. Usual states reach the number first.
pub(super) const MAX_CACHED: CacheSize = if cfg!(test) {
    CacheSize { states: 100, bytes: MIB }
} else {
    CacheSize { states: 200_000, bytes: 192 * MIB }
};
pub(super) const CACHED_AFTER_SHRINKING: CacheSize = if cfg!(test) {
    CacheSize { states: 0, bytes: 0 }
} else {
    CacheSize { states: 150_000, bytes: 144 * MIB }
};

/// The most states that one load reads, and of those the most that may be long.
const MAX_LOADED: usize = 1_024;
const MAX_LONG_LOADED: usize = 64;

/// Bounds the states in memory. Changed states stay until they are stored, and may be more than the bound: then the others
/// are forgotten once, and again only after as many were loaded as are forgotten otherwise.
#[derive(Debug)]
pub(super) struct CacheBound {
    /// How much there may be.
    most: CacheSize,
}

impl Default for CacheBound {
    fn default() -> Self {
        Self { most: MAX_CACHED }
    }
}

impl CacheBound {
    /// Forgets stored states if there are too many.
    pub(super) fn apply(&mut self, states: &mut StateCache) {
        if states.size().exceeds(self.most) {
            states.shrink_to(CACHED_AFTER_SHRINKING);
            let (kept, max, after) = (states.size(), MAX_CACHED, CACHED_AFTER_SHRINKING);
            self.most = CacheSize {
                states: max.states.max(kept.states + max.states - after.states),
                bytes: max.bytes.max(kept.bytes + max.bytes - after.bytes),
            };
        }
    }
}

/// Those of the `keys` that are loaded at once, the first one among them.
pub(super) fn loaded_together(keys: impl Iterator<Item = StateKey>) -> Vec<StateKey> {
    let (mut seen, mut long) = (HashSet::new(), 0);
    let mut is_loaded = |key: &StateKey| {
        long += usize::from(key.may_be_long());
        !key.may_be_long() || long <= MAX_LONG_LOADED
    };
    keys.filter(|key| seen.insert(key.clone()) && is_loaded(key)).take(MAX_LOADED).collect()
}

#[cfg(test)]
mod tests {
    use farthing_core::command::{Command, DecideError};
    use farthing_core::ids::{SecretKeyId, SpendKeyId, WalletId};
    use farthing_core::state::Missing;
    use ulid::Ulid;

    use super::super::simulation::{issue, registration};
    use super::*;

    fn carry_out<C: Command>(command: &C, states: &mut StateCache) {
        let facts = loop {
            match command.decide(states) {
                Ok(decision) => break decision.facts,
                Err(DecideError::Missing(Missing(keys))) => {
                    for key in keys {
                        states.load(key, None);
                    }
                }
                Err(DecideError::Refused(refusal)) => panic!("{refusal:?}"),
            }
        };
        states.evolve(&facts).unwrap();
    }

    #[test]
    fn more_changed_states_than_the_bound_do_not_push_out_all_others_again_and_again() {
        let (mut states, mut bound) = (StateCache::default(), CacheBound::default());
        carry_out(&registration(), &mut states);
        for number in 0..MAX_CACHED.states {
            carry_out(&issue(SecretKeyId::new(Ulid::from_parts(7, number as u128))), &mut states);
        }
        bound.apply(&mut states);
        let changed = states.len();
        assert!(changed > MAX_CACHED.states);
        let other = |number: usize| StateKey::Wallet(WalletId::new(Ulid::from(number as u128)));
        for number in 0..MAX_CACHED.states {
            states.load(other(number), None);
            bound.apply(&mut states);
            assert!(states.knows(&other(0)), "{number}");
        }
        states.load(other(MAX_CACHED.states), None);
        bound.apply(&mut states);
        assert_eq!(states.len(), changed, "the others are forgotten");
        // Once the changed ones are stored, the bound is what it was.
        states.take_changes();
        states.confirm_stored();
        bound = CacheBound::default();
        bound.apply(&mut states);
        assert!(states.len() <= MAX_CACHED.states);
    }

    #[test]
    fn one_load_reads_few_long_states_and_always_the_first() {
        let long = |number: u128| StateKey::SpendKey(SpendKeyId::new(Ulid::from(number)));
        let short = |number: u128| StateKey::Wallet(WalletId::new(Ulid::from(number)));
        let wanted = (0..200).flat_map(|number| [long(number), short(number), short(number)]);
        let loaded = loaded_together(wanted);
        assert_eq!(loaded[0], long(0));
        assert_eq!(loaded.iter().filter(|key| key.may_be_long()).count(), MAX_LONG_LOADED);
        assert_eq!(loaded.iter().filter(|key| !key.may_be_long()).count(), 200);
    }

    #[test]
    fn one_load_has_a_bound_of_states() {
        let key = |number: usize| StateKey::Wallet(WalletId::new(Ulid::from(number as u128)));
        let keys = |count: usize| (0..count).map(key);
        assert!(loaded_together(keys(MAX_LOADED + 1)).into_iter().eq(keys(MAX_LOADED)));
        let twice = keys(MAX_LOADED).chain(keys(MAX_LOADED + 1));
        assert_eq!(loaded_together(twice).len(), MAX_LOADED);
    }
}
