//! The URL at which the other gateways reach a gateway.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// A host, and perhaps a port, that speaks plain HTTP: `http://gateway-2.internal:8090`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaysUrl(Authority);

/// Without a slash at the end.
impl fmt::Display for GatewaysUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", Scheme::HTTP, self.0)
    }
}

impl FromStr for GatewaysUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The parser drops a fragment.
        let parsed = text.parse::<Uri>().ok().filter(|_| !text.contains('#')).map(Uri::into_parts);
        let root = parsed.filter(|parts| parts.path_and_query.as_ref().is_none_or(|path| path == "/"));
        let http = root.filter(|parts| parts.scheme == Some(Scheme::HTTP));
        let is_usable = |authority: &Authority| {
            let has_port = authority.port_u16().is_some_and(|port| port > 0);
            let is_plain = has_port || authority.host() == authority.as_str();
            is_plain && is_host(authority.host()) && !authority.as_str().contains('@')
        };
        let url = http.and_then(|parts| parts.authority).filter(is_usable).map(Self);
        url.ok_or_else(|| {
            "must be http://HOST[:PORT], without a user, a path or TLS, and not 0.0.0.0 or [::]".to_owned()
        })
    }
}

/// Whether others may reach it. At an unspecified address, a process reaches its own machine.
fn is_host(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = bracketed {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| !address.to_canonical().is_unspecified());
    }
    // The system's library takes 0 and 0.0 for 0.0.0.0.
    let is_unspecified = host.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    is_name && !is_unspecified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_for_other_gateways_is_a_host_of_plain_http() {
        let shown = |text: &str| text.parse::<GatewaysUrl>().map(|url| url.to_string());
        for text in [
            "http://gateway-2.internal:8090",
            "http://10.0.0.7:8090",
            "http://[fd00::7]:8090",
            "http://gateway",
            "http://gateway_2:8090",
            "http://0.gateways:8090",
            "http://[::1]:8090",
        ] {
            assert_eq!(shown(text).unwrap(), text);
            assert_eq!(shown(&format!("{text}/")).unwrap(), text);
        }
        for text in [
            "",
            "hello world",
            "gateway:8090",
            "10.0.0.7:8090",
            "https://gateway:8090",
            "ftp://gateway",
            "http://",
            "http://:8090",
            "http://gateway:",
            "http://gateway:0",
            "http://gateway:99999",
            "http://gateway:x",
            "http://user@gateway:8090",
            "http://user:secret@gateway:8090",
            "http://gateway:8090/path",
            "http://gateway:8090//",
            "http://gateway:8090/?a=b",
            "http://gateway:8090/#a",
            "/path",
            "http://0.0.0.0:8090",
            "http://0.0.0.0",
            "http://0:8090",
            "http://[::]:8090",
            "http://[0:0::0]:8090",
            "http://[::ffff:0.0.0.0]:8090",
            "http://[gateway]:8090",
            "http://[fd00::7",
            "http://$(POD_IP):8090",
            "http://$POD_IP:8090",
            "http://a,b:8090",
            "http://gateway*:8090",
            "http://a;b=c",
        ] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
