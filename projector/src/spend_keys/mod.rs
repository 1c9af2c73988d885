//! Spend keys, as `GET /manage/spend_keys/{id}` shows them.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::SpendKeyBatch;
