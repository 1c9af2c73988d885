//! The answers that are kept for the next lookups of a name.
//!
//! Invariant: a party with more names than others loses its own before theirs are forgotten.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::Addresses;
use crate::party::Party;

/// The answers. Each counts for one of the parties that use it: the one with the fewest names.
#[derive(Debug)]
pub(super) struct KeptNames {
    /// The most names.
    most: usize,
    /// Numbers the uses of names.
    uses: u64,
    by_name: HashMap<Arc<str>, Kept>,
    /// The names of each party by their last use. Holds no party without names.
    by_party: HashMap<Party, BTreeMap<u64, Arc<str>>>,
}

#[derive(Debug)]
struct Kept {
    addresses: Addresses,
    until: Instant,
    party: Party,
    last_use: u64,
}

impl KeptNames {
    /// Keeps at most so many names.
    pub(super) fn new(most: usize) -> Self {
        Self { most, uses: 0, by_name: HashMap::new(), by_party: HashMap::new() }
    }

    /// The addresses of `name`, which `party` uses, unless their time is over.
    pub(super) fn find(&mut self, name: &str, party: Party) -> Option<Addresses> {
        let kept = self.by_name.get(name).filter(|kept| Instant::now() < kept.until)?;
        let (addresses, until) = (Arc::clone(&kept.addresses), kept.until);
        self.keep(name, party, &addresses, until);
        Some(addresses)
    }

    /// Keeps the addresses that `party` has looked up. If there are too many names, the party with the most forgets the one
    /// that it has not used for the longest time.
    pub(super) fn keep(&mut self, name: &str, party: Party, addresses: &Addresses, until: Instant) {
        let party = self.owner(name, party);
        self.forget(name);
        self.uses += 1;
        let (name, last_use): (Arc<str>, _) = (name.into(), self.uses);
        self.by_party.entry(party).or_default().insert(last_use, Arc::clone(&name));
        self.by_name.insert(name, Kept { addresses: Arc::clone(addresses), until, party, last_use });
        if self.by_name.len() > self.most {
            self.forget_one();
        }
    }

    /// For whom `name` counts that `party` uses: for its owner so far, unless that one has more names.
    fn owner(&self, name: &str, party: Party) -> Party {
        let owner = self.by_name.get(name).map_or(party, |kept| kept.party);
        if self.names_of(party) < self.names_of(owner) { party } else { owner }
    }

    /// Of parties with equally many names, the one whose name was used before those of the others loses it.
    fn forget_one(&mut self) {
        let parties = self.by_party.values();
        let least_used = parties.filter_map(|names| Some((names.len(), names.first_key_value()?)));
        let of_most = least_used.max_by_key(|(count, (last_use, _))| (*count, Reverse(**last_use)));
        if let Some((_, (_, name))) = of_most {
            let name = Arc::clone(name);
            self.forget(&name);
        }
    }

    fn forget(&mut self, name: &str) {
        let Some(Kept { party, last_use, .. }) = self.by_name.remove(name) else { return };
        let Some(names) = self.by_party.get_mut(&party) else { return };
        names.remove(&last_use);
        if names.is_empty() {
            self.by_party.remove(&party);
        }
    }

    fn names_of(&self, party: Party) -> usize {
        self.by_party.get(&party).map_or(0, BTreeMap::len)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    const GREEDY: Party = Party(1);
    const OTHER: Party = Party(2);
    const TTL: Duration = Duration::from_mins(1);

    fn keep(kept: &mut KeptNames, name: &str, party: Party) {
        let addresses: Addresses = [IpAddr::from([192, 0, 2, 1])].into();
        kept.keep(name, party, &addresses, Instant::now() + TTL);
        assert!(kept.by_name.len() <= kept.most);
        let of_parties: usize = kept.by_party.values().map(BTreeMap::len).sum();
        assert_eq!(of_parties, kept.by_name.len());
        assert!(kept.by_party.values().all(|names| !names.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_the_most_names_forgets_the_one_that_was_not_used_for_the_longest_time() {
        let mut kept = KeptNames::new(4);
        for (name, party) in [("a", OTHER), ("b", GREEDY), ("c", GREEDY), ("d", GREEDY)] {
            keep(&mut kept, name, party);
        }
        assert!(kept.find("b", GREEDY).is_some());
        keep(&mut kept, "e", GREEDY);
        assert!(kept.find("c", GREEDY).is_none(), "b was used since");
        for name in ["a", "b", "d", "e"] {
            assert!(kept.find(name, OTHER).is_some(), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn names_of_one_party_do_not_displace_those_of_another_however_often_they_are_used() {
        let mut kept = KeptNames::new(100);
        for number in 0..30 {
            keep(&mut kept, &format!("other{number}"), OTHER);
        }
        for round in 0..3 {
            for number in 0..1_000 {
                let name = format!("many{number}");
                keep(&mut kept, &name, GREEDY);
                assert!(kept.find(&name, GREEDY).is_some(), "in round {round}");
            }
        }
        assert_eq!((kept.names_of(OTHER), kept.names_of(GREEDY)), (30, 70));
        // Nobody gets more than half of them from another one.
        for number in 30..200 {
            keep(&mut kept, &format!("other{number}"), OTHER);
        }
        assert_eq!((kept.names_of(OTHER), kept.names_of(GREEDY)), (50, 50));
        keep(&mut kept, "of a third", Party(3));
        assert!(kept.find("of a third", Party(3)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_counts_for_the_one_of_its_users_with_the_fewest() {
        let mut kept = KeptNames::new(10);
        for number in 0..10 {
            keep(&mut kept, &format!("many{number}"), GREEDY);
        }
        assert!(kept.find("many0", OTHER).is_some());
        assert_eq!((kept.names_of(OTHER), kept.names_of(GREEDY)), (1, 9));
        assert!(kept.find("many0", GREEDY).is_some());
        keep(&mut kept, "many0", GREEDY);
        assert_eq!(
            (kept.names_of(OTHER), kept.names_of(GREEDY)),
            (1, 9),
            "who has more does not take it back"
        );
        for number in 10..30 {
            keep(&mut kept, &format!("many{number}"), GREEDY);
        }
        assert!(kept.find("many0", OTHER).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_time_is_over_is_not_found_and_a_newer_one_takes_its_place() {
        let mut kept = KeptNames::new(2);
        keep(&mut kept, "a", GREEDY);
        tokio::time::advance(TTL).await;
        assert!(kept.find("a", GREEDY).is_none());
        keep(&mut kept, "a", OTHER);
        assert!(kept.find("a", OTHER).is_some());
        assert_eq!((kept.names_of(OTHER), kept.names_of(GREEDY), kept.by_name.len()), (1, 0, 1));
    }
}
