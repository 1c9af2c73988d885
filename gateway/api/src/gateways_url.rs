//! The URL at which the other gateways reach a gateway.

use std::fmt;
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
        let is_host = |authority: &Authority| {
            let has_port = authority.port_u16().is_some_and(|port| port > 0);
            let is_plain = has_port || authority.host() == authority.as_str();
            is_plain && !authority.host().is_empty() && !authority.as_str().contains('@')
        };
        let url = http.and_then(|parts| parts.authority).filter(is_host).map(Self);
        url.ok_or_else(|| "must be http://HOST[:PORT], without a user, a path or TLS".to_owned())
    }
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
        ] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
