//! The outbox of webhooks: what each is to be told, derived from the log exactly once. It stands beside the read models
//! and is none of them: it is never rebuilt, since everything in it has been told already.

mod fill;
mod fold;
pub mod query;

pub(crate) use self::fill::fill;
