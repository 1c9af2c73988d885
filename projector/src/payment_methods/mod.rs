//! Payment methods: one row per method ever added to a wallet.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::PaymentMethodBatch;
