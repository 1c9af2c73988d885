//! The hosts that `--provider-host` may name and that are reached over plain HTTP: those whose traffic stays on this
//! machine or in a private network, as far as their names say. Pure.

use std::net::IpAddr;

/// The ends of names that no public zone has (RFC 6761, RFC 6762, RFC 8375; ICANN reserves `internal`).
const PRIVATE_ENDS: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];

/// Whether a managed key may be sent to `host` over plain HTTP: a loopback or private address, a name without a dot, or
/// one that no public zone has.
pub(super) fn permits(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => match address.to_canonical() {
            IpAddr::V4(address) => address.is_loopback() || address.is_private(),
            IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
        },
        Err(_) => !host.contains(['.', ':']) || PRIVATE_ENDS.iter().any(|end| host.ends_with(end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_loopback_and_private_networks() {
        for host in [
            "127.0.0.1",
            "127.8.9.10",
            "::1",
            "[::1]",
            "::ffff:10.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "fd00::1",
            "localhost",
            "LocalHost.",
            "vllm",
            "models.localhost",
            "vllm.default.svc.cluster.local",
            "proxy.internal",
            "box.home.arpa",
        ] {
            assert!(permits(host), "{host}");
        }
        for host in [
            "8.8.8.8",
            "172.32.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "2606:4700::1",
            "::ffff:8.8.8.8",
            "fe80::1%eth0",
            "proxy.example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "notlocal.xlocal",
            "127.1.",
        ] {
            assert!(!permits(host), "{host}");
        }
    }
}
