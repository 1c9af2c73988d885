//! The address guard: outbound calls may go to public addresses and to those that the operator allows. Pure; the dialer
//! checks every address with it before it dials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Decides which addresses may be dialled.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    /// The operator's exceptions: networks that are allowed though they are not public.
    allowed: Vec<IpNet>,
}

impl AddressGuard {
    /// A guard that also permits the networks in `allowed`.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed }
    }

    /// Whether `address` may be dialled. A mapped IPv4 address counts as the IPv4 address.
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed.iter().any(|net| net.contains(&address)) || is_public(address)
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b)) // shared address space; one cloud has its metadata service here
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b));
    !(reserved
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(embedded) = embedded_v4(address) {
        return is_public_v4(embedded);
    }
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is global unicast. Of it, 2001::/23 (with Teredo), 2001:db8::/32 (documentation) and 3ff0::/12 (it
    // holds 3fff::/20, documentation) are not public.
    (first & 0xe000) == 0x2000
        && !(first == 0x2001 && second < 0x0200)
        && !(first == 0x2001 && second == 0x0db8)
        && (first & 0xfff0) != 0x3ff0
}

/// The IPv4 address that packets to a NAT64 or 6to4 address reach. (Mapped addresses are made canonical before.)
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    match segments {
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        let guard = AddressGuard::default();
        for refused in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.192",
            "192.168.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
        ] {
            assert!(!guard.permits(refused.parse().unwrap()), "{refused}");
        }
        for allowed in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "64:ff9b::808:808"] {
            assert!(guard.permits(allowed.parse().unwrap()), "{allowed}");
        }
    }

    #[test]
    fn the_operator_may_allow_networks_that_are_not_public() {
        let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap()]);
        assert!(guard.permits("127.0.0.1".parse().unwrap()));
        assert!(guard.permits("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!guard.permits("::1".parse().unwrap()));
        assert!(!guard.permits("10.0.0.1".parse().unwrap()));
    }
}
