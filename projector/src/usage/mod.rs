//! Usage: what calls come to, by merchant, customer and meter, in quarters of an hour. A call counts in the quarter it
//! was opened in, so that a report equals the list of requests.

mod counters;
mod fold;
pub mod query;
mod write;

pub use self::counters::Counters;
pub(crate) use self::fold::Batch;
