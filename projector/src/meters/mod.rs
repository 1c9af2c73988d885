//! Meters (the older name is products), as `GET /meters` shows them.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::MeterBatch;
