//! Requests: one row per forwarded or reported call. Every call writes to this read model.

mod filter;
mod fold;
pub mod query;
mod write;

pub use self::filter::RequestFilter;
pub(crate) use self::fold::RequestBatch;
