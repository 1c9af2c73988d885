//! The outbox of webhooks: the deliveries of each webhook, derived from the log exactly once. The outbox is not a read
//! model: it is never rebuilt, since its deliveries have been made.

mod fill;
mod fold;
pub mod query;

pub(crate) use self::fill::fill;
