//! Usage: the sums of calls by merchant, customer, meter and quarter of an hour. A call counts in the quarter in which it
//! was opened, so a report equals the list of requests.

mod counters;
mod fold;
pub mod query;
mod request_sums;
mod write;

pub use self::counters::Counters;
pub(crate) use self::fold::UsageBatch;
