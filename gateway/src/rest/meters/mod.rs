//! Meters, in the older words products: what a merchant charges for usage (completion.md section 4).

mod configuration;
mod create;
mod resource;

pub(super) use self::create::create;
