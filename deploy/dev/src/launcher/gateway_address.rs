//! The addresses at which gateways listen, and the URLs at which clients reach them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;

use super::Config;
use super::ports::Ports;

/// Where a gateway listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listens {
    /// The API.
    pub(super) api: SocketAddr,
    /// The hosted pages and the API reference.
    pub(super) pages: SocketAddr,
    /// The metrics and the state of the process. Nobody else on the network reaches it.
    pub(super) operator: SocketAddr,
}

/// Chooses the addresses of all gateways. Only the first one's are given.
pub(super) fn choose(config: &Config, ports: &mut Ports) -> Result<Vec<Listens>> {
    let mut free = |given: SocketAddr, name: String| match given.port() {
        0 => Ok(SocketAddr::new(given.ip(), ports.take(&name, given.ip())?)),
        1.. => anyhow::Ok(given),
    };
    let next = SocketAddr::new(
        config.listen.ip(),
        match config.listen.port() {
            0 => 0,
            port => port.checked_add(1).unwrap_or(port - 1),
        },
    );
    let given = (config.listen, config.pages_listen.unwrap_or(next));
    (0..config.gateways)
        .map(|index| {
            let any = |address: SocketAddr| SocketAddr::new(address.ip(), 0);
            let (api, pages) = if index == 0 { given } else { (any(given.0), any(given.1)) };
            let api = free(api, format!("gateway-{index}"))?;
            let pages = free(pages, format!("pages-{index}"))?;
            let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
            Ok(Listens { api, pages, operator: free(loopback, format!("operator-gateway-{index}"))? })
        })
        .collect()
}

/// The base URL of a gateway that listens at `listen`. Ends in `/v1/`.
pub(super) fn base_url(listen: SocketAddr) -> String {
    format!("http://{}/v1/", reachable(listen))
}

/// The URL of the hosted pages that are served at `listen`.
pub(super) fn pages_url(listen: SocketAddr) -> String {
    format!("http://{}/", reachable(listen))
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
