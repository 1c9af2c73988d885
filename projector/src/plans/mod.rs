//! The read model of plans and their credit bundles, for `GET /plans`, its older name `GET /subscription_configs`, and
//! `GET /credit_bundles`.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::PlanBatch;
