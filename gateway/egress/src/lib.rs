//! Outbound connections of a gateway: which addresses may be called, how they are dialled, and TLS.
//!
//! Invariant: every call to a host that a merchant names goes through a [`Connector`], and a connector dials only
//! addresses that its [`AddressGuard`] has checked.

mod address;
mod dialer;
pub mod tls;

pub use self::address::AddressGuard;
pub use self::dialer::{Connector, Error, connector};
