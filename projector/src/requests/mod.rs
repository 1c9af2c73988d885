//! Requests: one row per forwarded call. The hot read model: every call writes here.

mod filter;
mod fold;
pub mod query;
mod sums;
mod write;

pub use self::filter::Filter;
pub(crate) use self::fold::Batch;
pub(crate) use self::sums::sums;
