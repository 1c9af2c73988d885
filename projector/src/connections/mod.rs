//! Connections (the links between a merchant and a wallet) and the money in every wallet.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::ConnectionBatch;
