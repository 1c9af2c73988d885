//! Spend keys: restricted keys on a wallet; `/spend_keys` and `/manage/spend_keys` are the same resource
//! (interface.md, Spend keys; completion.md section 6).

mod create;
mod find;
mod resource;
mod rotate;
mod settings;

pub(super) use self::create::create;
pub(super) use self::find::find;
pub(super) use self::rotate::rotate;
