//! The journal: where each merchant's events are in its partition, and the balances of its accounts.

mod balances;
mod fold;
mod kinds;
mod lines;
pub mod query;
mod write;

use farthing_core::accounts::{Journal, JournalEntry, is_balanced};
use farthing_core::event::Event;

pub(crate) use self::fold::JournalBatch;
pub use self::kinds::Kinds;

/// The positions of a block.
const BLOCK: i64 = 256;

/// The block of a position.
const fn block_of(position: i64) -> i64 {
    (position - 1).div_euclid(BLOCK)
}

/// The first position of a block.
const fn first_of(block: i64) -> i64 {
    block * BLOCK + 1
}

/// The postings of an event as the read model counts them, and whether they add up to zero. An event whose amounts are out of
/// range has none.
fn postings(journal: &mut Journal, event: &Event) -> (JournalEntry, bool) {
    match journal.enter(event) {
        Ok(entry) => {
            let is_balanced = is_balanced(&entry);
            (entry, is_balanced)
        }
        Err(_) => (JournalEntry::new(), false),
    }
}
