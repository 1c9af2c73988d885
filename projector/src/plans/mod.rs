//! Plans (the older name is subscription configs) and their credit bundles, as `GET /plans` and `GET /credit_bundles`
//! show them.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::PlanBatch;
