//! Which events are folded into states together.

use std::collections::HashSet;

use farthing_core::event::{Event, Fact, RequestEvent};
use farthing_core::state::{StateCache, StateKey};

/// The most states that may be long and are loaded for one part. It is small in tests, so that the simulation reaches it.
const MAX_LONG: usize = if cfg!(test) { 2 } else { 128 };

/// The parts of `facts` that are folded one after the other, so that few long states are loaded at once.
pub(crate) fn folded_together<'a>(states: &StateCache, facts: &'a [Fact]) -> Vec<&'a [Fact]> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut seen, mut loaded) = (HashSet::new(), 0);
    for (at, fact) in facts.iter().enumerate() {
        let unknown = states.unknown_states(std::slice::from_ref(fact));
        let new = unknown.into_iter().filter(|key| key.may_be_long() && seen.insert(key.clone()));
        let new = new.filter(|key| !creates(fact, key)).count();
        if loaded + new > MAX_LONG && at > begin {
            parts.push(&facts[begin..at]);
            (begin, loaded) = (at, 0);
        }
        loaded += new;
    }
    parts.push(&facts[begin..]);
    parts
}

/// Whether there is no state of the key before the fact. Most calls are opened and settled in the same page.
const fn creates(fact: &Fact, key: &StateKey) -> bool {
    matches!((&fact.event, key), (Event::Request(RequestEvent::Opened(_)), StateKey::Request(_)))
}
