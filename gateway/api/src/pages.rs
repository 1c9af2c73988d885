//! The hosted pages and the API reference, at an address of their own.
//!
//! Invariant: they are served there alone, and nothing else is. So no response of a provider shares an origin with a
//! page on which people type card data.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

/// Where the pages are served.
#[derive(Debug, Clone)]
pub struct Pages {
    /// The address to listen on; `None` if it is the one beside that of the API.
    pub listen: Option<SocketAddr>,
    /// The URL at which browsers reach it; `None` if it is the address itself.
    pub url: Option<PagesUrl>,
}

impl Pages {
    /// The address to listen on, for an API at `api`: the next port of the same host, if none is given.
    pub(crate) fn address(&self, api: SocketAddr) -> SocketAddr {
        let beside = match api.port() {
            0 => 0,
            u16::MAX => u16::MAX - 1,
            port => port + 1,
        };
        self.listen.unwrap_or(SocketAddr::new(api.ip(), beside))
    }
}

/// The URL of the pages: a scheme and a host, such as `https://pay.example`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagesUrl {
    scheme: Scheme,
    authority: Authority,
}

impl PagesUrl {
    /// The URL of a listener that browsers reach directly; `None` if `address` stands for all addresses.
    pub(crate) fn of(address: SocketAddr) -> Option<Self> {
        let authority = address.to_string().parse().ok().filter(|_| !address.ip().is_unspecified())?;
        Some(Self { scheme: Scheme::HTTP, authority })
    }

    /// Whether `authority` names the host of the pages. Ports do not count: browsers share cookies among them.
    pub(crate) fn is_at(&self, authority: &str) -> bool {
        let host = authority.parse::<Authority>().ok();
        host.is_some_and(|other| other.host().eq_ignore_ascii_case(self.authority.host()))
    }
}

/// With a slash at the end.
impl fmt::Display for PagesUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/", self.scheme, self.authority)
    }
}

impl FromStr for PagesUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The parser drops a fragment.
        let parsed = text.parse::<Uri>().ok().filter(|_| !text.contains('#')).map(Uri::into_parts);
        let root = parsed.filter(|parts| parts.path_and_query.as_ref().is_none_or(|path| path == "/"));
        let parts = root.and_then(|parts| parts.scheme.zip(parts.authority));
        let url = parts.map(|(scheme, authority)| Self { scheme, authority });
        let url = url.filter(|url| url.scheme == Scheme::HTTP || url.scheme == Scheme::HTTPS);
        let is_host = |authority: &Authority| {
            let has_port = authority.port_u16().is_some();
            !authority.host().is_empty() && (has_port || authority.host() == authority.as_str())
        };
        let url = url.filter(|url| is_host(&url.authority) && !url.authority.as_str().contains('@'));
        url.ok_or_else(|| "must be http://HOST[:PORT] or https://HOST[:PORT], without a path".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_at_the_next_port_unless_they_have_an_address() {
        let address = |listen: Option<&str>, api: &str| {
            let listen = listen.map(|listen| listen.parse().unwrap());
            Pages { listen, url: None }.address(api.parse().unwrap()).to_string()
        };
        assert_eq!(address(None, "127.0.0.1:8080"), "127.0.0.1:8081");
        assert_eq!(address(None, "0.0.0.0:65535"), "0.0.0.0:65534");
        assert_eq!(address(None, "[::1]:0"), "[::1]:0");
        assert_eq!(address(Some("127.0.0.2:90"), "127.0.0.1:8080"), "127.0.0.2:90");
    }

    #[test]
    fn the_url_of_the_pages_is_a_scheme_and_a_host() {
        let shown = |text: &str| text.parse::<PagesUrl>().map(|url| url.to_string());
        assert_eq!(shown("https://pay.example").unwrap(), "https://pay.example/");
        assert_eq!(shown("http://[::1]:81/").unwrap(), "http://[::1]:81/");
        for text in [
            "",
            "pay.example",
            "ftp://pay.example",
            "https://",
            "https://:80",
            "https://a@pay.example",
            "https://pay.example/pages",
            "https://pay.example/?a=b",
            "https://pay.example/#a",
            "https://pay.example:x",
            "/embed",
        ] {
            assert!(shown(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_is_the_same_at_every_port() {
        let url: PagesUrl = "https://Pay.example:8443".parse().unwrap();
        assert!(url.is_at("pay.example") && url.is_at("PAY.EXAMPLE:80"));
        assert!(!url.is_at("api.example:8443") && !url.is_at("") && !url.is_at("x.pay.example"));
    }

    #[test]
    fn all_addresses_together_have_no_url() {
        let of = |address: &str| PagesUrl::of(address.parse().unwrap()).map(|url| url.to_string());
        assert_eq!(of("127.0.0.1:8081").unwrap(), "http://127.0.0.1:8081/");
        assert_eq!(of("[::1]:8081").unwrap(), "http://[::1]:8081/");
        assert_eq!(of("0.0.0.0:8081"), None);
        assert_eq!(of("[::]:8081"), None);
    }
}
