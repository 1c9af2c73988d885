//! Secret keys: this interface issues none (interface.md, Secret keys).

mod create;

pub(super) use self::create::create;
