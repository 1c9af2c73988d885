//! Which events are folded into states together.

use std::slice::Chunks;

use farthing_core::event::Fact;
use farthing_core::state::StateCache;

/// The most states that may be long of facts that are folded in one part. This bound and the next are small in tests, so
/// that the simulation reaches them.
const MAX_LONG: usize = if cfg!(test) { 2 } else { 128 };

/// The facts of a part, if they have more. Each changes one or two states that may be long.
const PART: usize = if cfg!(test) { 3 } else { 64 };

/// The parts of `facts` that are folded one after the other, so that few long states are loaded at once. Usual facts are
/// one part.
pub(crate) fn folded_together<'a>(states: &StateCache, facts: &'a [Fact]) -> Chunks<'a, Fact> {
    let long = states.unknown_states(facts).iter().filter(|key| key.may_be_long()).count();
    facts.chunks(if long > MAX_LONG { PART } else { facts.len().max(1) })
}
