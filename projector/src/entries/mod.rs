//! The entries of wallets, with the money after each.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::EntryBatch;
