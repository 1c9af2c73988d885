//! Checkout sessions, as `GET /checkout_sessions` shows them.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::CheckoutSessionBatch;
