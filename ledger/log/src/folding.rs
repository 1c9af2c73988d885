//! Which events are folded into states together.

use std::collections::HashSet;

use farthing_core::event::{Event, Fact, RequestEvent};
use farthing_core::state::{StateCache, StateKey};

/// The most states that may be long and are loaded for one part. It is small in tests, so that the simulation reaches it.
const MAX_LONG: usize = if cfg!(test) { 2 } else { 128 };

/// Divides `facts` into those that are folded first, and the others: few long states are loaded at once.
pub(crate) fn folded_first<'a>(states: &StateCache, facts: &'a [Fact]) -> (&'a [Fact], &'a [Fact]) {
    let (mut seen, mut loaded) = (HashSet::new(), 0);
    for (at, fact) in facts.iter().enumerate() {
        let unknown = states.unknown_states(std::slice::from_ref(fact));
        let new = unknown.into_iter().filter(|key| key.may_be_long() && seen.insert(key.clone()));
        loaded += new.filter(|key| !creates(fact, key)).count();
        if loaded > MAX_LONG && at > 0 {
            return facts.split_at(at);
        }
    }
    (facts, &[])
}

/// Whether there is no state of the key before the fact. Most calls are opened and settled in the same page.
const fn creates(fact: &Fact, key: &StateKey) -> bool {
    matches!((&fact.event, key), (Event::Request(RequestEvent::Opened(_)), StateKey::Request(_)))
}
