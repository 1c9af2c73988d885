//! The states at every position of a simulated log, folded from its events one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use farthing_core::event::Fact;
use farthing_core::state::{EvolveError, State, StateCache, WalletOwner};

/// The kind and the id of a stored state.
pub(super) type StoredKey = (&'static str, String);

/// The states at every position.
#[derive(Debug, Default)]
pub(super) struct History {
    fold: StateCache,
    /// The versions of each state, with the positions of the events that made them.
    versions: BTreeMap<StoredKey, Vec<(i64, Option<String>)>>,
    /// The states that each event changed.
    changes: BTreeMap<i64, Vec<StoredKey>>,
}

impl History {
    /// Folds the event at `position`. Fails if an invariant of states is broken.
    pub(super) fn push(&mut self, position: i64, fact: Fact) -> Result<(), String> {
        let fact = [fact];
        let keys = StateCache::default().unknown_states(&fact);
        for key in self.fold.unknown_states(&fact) {
            self.fold.load(key, None);
        }
        self.fold.evolve(&fact).map_err(|error| match error {
            EvolveError::Missing(missing) => format!("{missing:?}"),
            EvolveError::InvariantBroken(broken) => broken.to_string(),
        })?;
        for key in keys {
            let state = self.fold.state(&key).expect("it was just folded");
            if let Some(State::Wallet(wallet)) = state
                && matches!(wallet.owner, WalletOwner::Customer(_))
                && (wallet.balance.is_negative() || wallet.held > wallet.balance)
            {
                return Err(format!("a customer's wallet is short: {wallet:?}"));
            }
            let stored = key.stored();
            let versions = self.versions.entry(stored.clone()).or_default();
            versions.push((position, state.map(State::to_json)));
            self.changes.entry(position).or_default().push(stored);
        }
        Ok(())
    }

    /// A state as it was at `position`.
    pub(super) fn at(&self, key: &StoredKey, position: i64) -> Option<&str> {
        let versions = self.versions.get(key)?;
        versions.iter().rev().find(|(at, _)| *at <= position)?.1.as_deref()
    }

    /// The position of the last change of a state.
    pub(super) fn changed_at(&self, key: &StoredKey) -> Option<i64> {
        Some(self.versions.get(key)?.last()?.0)
    }

    /// The states that the events after `from` up to `to` changed.
    pub(super) fn changed_between(&self, from: i64, to: i64) -> BTreeSet<StoredKey> {
        let between = self.changes.range((Bound::Excluded(from), Bound::Included(to)));
        between.flat_map(|(_, keys)| keys.iter().cloned()).collect()
    }

    /// All states as they were at `position`.
    pub(super) fn all_at(&self, position: i64) -> BTreeMap<StoredKey, String> {
        let bodies = self.versions.keys().map(|key| (key, self.at(key, position)));
        bodies.filter_map(|(key, body)| Some((key.clone(), body?.to_owned()))).collect()
    }
}
