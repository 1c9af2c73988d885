//! Secret keys: one row per key ever issued, with the instant it was revoked.

mod fold;
pub mod query;
mod write;

pub(crate) use self::fold::SecretKeyBatch;
