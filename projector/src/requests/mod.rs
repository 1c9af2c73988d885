//! Requests: one row per forwarded call. The hot read model: every call writes here.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::Batch;
