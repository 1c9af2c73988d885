//! Outbound connections of a gateway: which addresses may be called, how names are resolved, how addresses are dialled,
//! and TLS.
//!
//! Invariant: every call to a host that a merchant names goes through a [`Connector`], and a connector dials only
//! addresses that its [`AddressGuard`] has checked.

mod address;
mod connector;
mod dialer;
mod dialled;
mod error;
mod guarded;
mod interim;
mod names;
mod party;
pub mod tls;

pub use self::address::AddressGuard;
pub use self::connector::{Connector, connector};
pub use self::dialled::{CONNECTIONS_PER_CALL, CallEnd, Places};
pub use self::error::Error;
pub use self::interim::{MAX_HEAD_BYTES, too_many_interim_responses};
pub use self::names::{FILES_PER_LOOKUP, LookupError, MOST_LOOKUPS, Names};
pub use self::party::{Party, on_behalf_of};
