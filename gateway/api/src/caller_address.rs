//! The address of a caller.

use std::net::{IpAddr, Ipv6Addr};

use http::request::Parts;

use crate::limit_per::LimitPer;

/// The bits of an IPv6 address that name a network; within it, a caller chooses addresses at will.
const IPV6_NETWORK: u128 = !(u64::MAX as u128);

/// The address of a caller. Of an IPv6 address, it is the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallerAddress(IpAddr);

impl CallerAddress {
    /// The caller at the other end of a connection.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK).into(),
        })
    }

    /// The caller of a request, as the server noted it.
    pub(crate) fn of_request(parts: &Parts) -> Self {
        *parts.extensions.get().expect("the server notes the address of every caller")
    }
}

/// A limit for each address.
pub(crate) type PerAddress = LimitPer<CallerAddress>;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> CallerAddress {
        CallerAddress::of(address.parse().unwrap())
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::"));
        assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
    }
}
