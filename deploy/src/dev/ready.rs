//! The ready file: what a tool needs to know of a running `farthing dev`. It is replaced whenever a child was started
//! again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::Serialize;

use super::demo::Demo;
use super::fleet::Pids;

/// The content of the ready file.
#[derive(Debug, Serialize)]
pub(super) struct Ready {
    /// The first gateway's, ending in `/v1/`.
    pub(super) base_url: String,
    gateways: Vec<String>,
    /// The demo merchant's things.
    #[serde(flatten)]
    pub(super) demo: Demo,
    provider_url: String,
    /// The mock, as the gateways' `openai`.
    pub(super) openai_url: String,
    database_url: String,
    nats_url: String,
    /// The newest process ids.
    pub(super) pids: Pids,
    #[serde(skip)]
    announced: bool,
}

impl Ready {
    /// All but the process ids.
    pub(super) fn new(
        gateways: Vec<String>,
        demo: Demo,
        provider: SocketAddr,
        openai: SocketAddr,
        database_url: String,
        nats_url: String,
    ) -> Self {
        Self {
            base_url: gateways.first().cloned().unwrap_or_default(),
            gateways,
            demo,
            provider_url: format!("http://{provider}"),
            openai_url: format!("http://{openai}"),
            database_url,
            nats_url,
            pids: Pids::default(),
            announced: false,
        }
    }

    /// True the first time only.
    pub(super) fn announced(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }
}

/// The base URL of a gateway that listens at `listen`.
pub(super) fn base_url(listen: SocketAddr) -> String {
    format!("http://{}/v1/", connectable(listen))
}

/// An address at which a listener on all addresses is reached.
pub(super) fn connectable(listen: SocketAddr) -> SocketAddr {
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
