//! Subscriptions and their remaining credit, as `GET /subscriptions` and `GET /active-subscriptions` show them.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::SubscriptionBatch;
