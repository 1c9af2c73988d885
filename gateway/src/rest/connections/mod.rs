//! Connections: the links between a merchant and its customers' wallets, in the older form (interface.md,
//! Connection; completion.md section 7).

mod find;
mod list;
mod resource;

pub(super) use self::find::find;
pub(super) use self::list::list;
