//! Requests: the records of forwarded calls (interface.md, Request; completion.md section 3).

mod find;
mod list;
mod resource;

pub(super) use self::find::find;
pub(super) use self::list::list;
