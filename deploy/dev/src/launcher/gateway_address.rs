//! The addresses and URLs at which clients reach a gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The base URL of a gateway that listens at `listen`. Ends in `/v1/`.
pub(super) fn base_url(listen: SocketAddr) -> String {
    format!("http://{}/v1/", reachable(listen))
}

/// An address that reaches a listener at `listen`: loopback for a listener on all addresses.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        assert_eq!(base_url("0.0.0.0:80".parse().unwrap()), "http://127.0.0.1:80/v1/");
        assert_eq!(base_url("[::]:80".parse().unwrap()), "http://[::1]:80/v1/");
        assert_eq!(base_url("127.0.0.1:81".parse().unwrap()), "http://127.0.0.1:81/v1/");
    }
}
