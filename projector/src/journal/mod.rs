//! The journal: where each merchant's events are in its partition, and the balances of its accounts.

mod balances;
mod fold;
mod kinds;
mod lines;
pub mod query;
mod write;

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
