//! Checks of the stored states against the books.

use std::collections::{BTreeMap, BTreeSet};

use farthing_core::event::Fact;
use farthing_core::state::{CacheSize, EvolveError, Holder, Missing, State, StateCache, StateKey, shape};

use super::Shop;

impl Shop {
    /// Checks that the stored states agree with the books.
    pub(crate) fn check(&mut self) {
        self.till.check_accounts();
        let mut open = BTreeSet::new();
        for (key, json) in self.till.store.values() {
            match (key, State::from_json(key, shape(), json).unwrap()) {
                (StateKey::Wallet(id), State::Wallet(wallet)) => {
                    let account = &self.books.accounts[id];
                    assert_eq!(wallet.balance.decimal(), account.balance(), "balance of {id}");
                    assert_eq!(wallet.held.decimal(), account.held, "holds on {id}");
                }
                (StateKey::Request(id), State::Request(_)) => {
                    open.insert(*id);
                }
                (StateKey::TierUsage(holder, meter, start), State::TierUsage(position)) => {
                    let holder = match holder {
                        Holder::Customer(id) => id.to_string(),
                        Holder::Merchant(id) => id.to_string(),
                    };
                    let place = format!("{holder}/{meter}/{}", start.timestamp_millis());
                    assert_eq!(position, self.books.positions[&place], "position at {place}");
                }
                (StateKey::Customer(id), State::Customer(customer)) => {
                    let mut known = self.customers.iter().filter(|(_, known, ..)| known == id);
                    assert_eq!(known.next().map(|known| &known.3), Some(&customer.reference_id));
                    assert!(!self.deleted_customers.contains(id), "{id} is deleted");
                }
                (StateKey::Reference(_, reference), State::Reference(id)) => {
                    let mut known = self.customers.iter().filter(|(_, known, ..)| *known == id);
                    assert_eq!(known.next().map(|known| known.3.as_ref()), Some(Some(reference)));
                }
                (StateKey::Meter(id), State::Meter(_)) => assert!(!self.deleted_meters.contains(id)),
                (StateKey::Spending(id), State::Spending(spending)) => {
                    self.books.check_spending(*id, &spending, self.now);
                }
                (StateKey::SpendKeyHash(_), State::SpendKeyHash(id)) => {
                    assert!(self.spend_keys.iter().any(|key| key.id == id && !key.is_deleted));
                }
                _ => {}
            }
        }
        assert!(open.iter().eq(self.books.open.keys()), "open requests");
        let keys = self.till.store.keys().filter(|(kind, _)| *kind == "secret_key").count();
        assert_eq!(keys, self.secret_keys.len(), "one state per active secret key");
        let stored = |kind: &str| self.till.store.keys().filter(|(there, _)| *there == kind).count();
        assert_eq!(stored("customer"), self.customers.len() - self.deleted_customers.len());
        let references = self.customers.iter().filter(|customer| customer.3.is_some()).count();
        assert_eq!(stored("reference"), references, "one state per reference id in use");
        assert_eq!(stored("meter"), self.meters.len() - self.deleted_meters.len());
        assert_eq!(stored("meter_slug"), stored("meter"), "one state per slug in use");
        let hashes = self.till.store.keys().filter(|(kind, _)| *kind == "spend_key_hash").count();
        let alive = self.spend_keys.iter().filter(|key| !key.is_deleted).count();
        assert_eq!(hashes, alive, "one valid hash per spend key");
    }

    /// Checks that folding all facts from scratch, one by one, gives the same states, and so does a fold whose states are
    /// stored now and then and forgotten in between.
    pub(crate) fn check_a_fold_from_nothing(&mut self) {
        let mut cache = StateCache::default();
        let mut states: BTreeMap<(&'static str, String), String> = BTreeMap::new();
        for fact in &self.till.facts {
            while let Err(stuck) = cache.evolve(std::slice::from_ref(fact)) {
                let EvolveError::Missing(Missing(keys)) = stuck else { panic!("{stuck:?}") };
                for key in keys {
                    cache.load(key, None);
                }
            }
            for (key, json) in cache.take_changes() {
                match json {
                    Some(json) => states.insert(key.stored(), json),
                    None => states.remove(&key.stored()),
                };
            }
            cache.confirm_stored();
        }
        let stored: BTreeMap<_, _> =
            self.till.store.iter().map(|(name, (_, json))| (name.clone(), json.clone())).collect();
        assert_eq!(states, stored, "the stored states are a fold of the log");
        for fails in [false, true] {
            assert_eq!(stored_now_and_then(&self.till.facts, fails), stored, "stored behind the log");
        }
    }
}

/// The states of a fold that stores its changes after every seventh fact. If it `fails`, the answer of the store is lost
/// every third time, and they are stored again with the next ones. What is stored is forgotten, and loaded again when it
/// is needed.
fn stored_now_and_then(facts: &[Fact], fails: bool) -> BTreeMap<(&'static str, String), String> {
    let mut cache = StateCache::default();
    let mut stored = BTreeMap::new();
    for (at, fact) in facts.iter().enumerate() {
        while let Err(stuck) = cache.evolve(std::slice::from_ref(fact)) {
            let EvolveError::Missing(Missing(keys)) = stuck else { panic!("{stuck:?}") };
            for key in keys {
                let state = stored.get(&key.stored());
                let state = state.map(|json: &String| State::from_json(&key, shape(), json).unwrap());
                cache.load(key, state);
            }
        }
        let is_last = at + 1 == facts.len();
        if at % 7 != 0 && !is_last {
            continue;
        }
        for (key, json) in cache.take_changes() {
            if let Some(json) = json {
                stored.insert(key.stored(), json);
            } else {
                let was_stored = stored.remove(&key.stored()).is_some();
                assert!(fails || was_stored, "{key:?} was never stored and is removed");
            }
        }
        if fails && at % 21 == 0 && !is_last {
            cache.put_changes_back();
            continue;
        }
        cache.confirm_stored();
        cache.shrink_to(CacheSize { states: 0, bytes: 0 });
        assert!(cache.is_empty(), "everything that is stored can be forgotten");
        assert_eq!(cache.size().bytes, 0);
    }
    stored
}
