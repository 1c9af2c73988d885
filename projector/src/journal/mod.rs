//! The journal: where each merchant's events are in its partition, and the balances of its accounts.

mod balances;
mod fold;
mod kinds;
mod lines;
pub mod query;
mod write;

pub(crate) use self::fold::JournalBatch;
pub use self::kinds::Kinds;

/// The positions of a span.
const SPAN: i64 = 256;

/// The span of a position.
const fn span_of(position: i64) -> i64 {
    (position - 1).div_euclid(SPAN)
}

/// The first position of a span.
const fn first_of(span: i64) -> i64 {
    span * SPAN + 1
}
