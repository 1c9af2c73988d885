//! The headers that pass to the provider and back. All pass unchanged except hop-by-hop headers, `x-service-*` headers
//! and the slots that carried the credential. Pure.

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

/// The prefix of the gateway's own headers.
const OURS: &str = "x-service-";

/// Hop-by-hop headers (RFC 9110 section 7.6.1), besides those that `Connection` names. The gateway itself answers
/// `Expect`.
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

/// A place in the request that carries a credential or a provider key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// `Authorization: Bearer …`.
    Authorization,
    /// A header whose whole value is the key.
    Plain(&'static str),
    /// The query parameter `key`.
    Query,
}

/// The headers to the provider. `credentials` are all slots that held a credential of this service.
pub(super) fn to_provider(mut headers: HeaderMap, credentials: &[Slot]) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    headers.remove(HOST);
    strip_ours(&mut headers);
    for slot in credentials {
        match slot {
            Slot::Authorization => headers.remove(http::header::AUTHORIZATION),
            Slot::Plain(name) => headers.remove(*name),
            Slot::Query => None,
        };
    }
    headers
}

/// The headers in which callers send their own provider keys.
const KEY_HEADERS: [&str; 6] =
    ["authorization", "x-api-key", "x-goog-api-key", "xi-api-key", "api-key", "x-provider-api-key"];

/// The caller's own provider keys among the headers to the provider, by header name.
pub(super) fn own_keys(headers: &HeaderMap) -> Vec<(&'static str, HeaderValue)> {
    KEY_HEADERS
        .into_iter()
        .flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value.clone())))
        .collect()
}

/// Replaces the credential in `slot` by the provider key.
pub(super) fn set_provider_key(
    headers: &mut HeaderMap,
    slot: Slot,
    key: &str,
) -> Result<(), http::header::InvalidHeaderValue> {
    let (name, text) = match slot {
        Slot::Authorization | Slot::Query => (http::header::AUTHORIZATION, format!("Bearer {key}")),
        Slot::Plain(name) => (HeaderName::from_static(name), key.to_owned()),
    };
    let mut value = HeaderValue::try_from(text)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Headers with a digest of the body.
const DIGESTS: [&str; 4] = ["content-md5", "digest", "content-digest", "repr-digest"];

/// Adapts the headers to an altered body of `length` bytes.
pub(super) fn fit_altered_body(headers: &mut HeaderMap, length: usize) {
    for name in DIGESTS {
        headers.remove(name);
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Whether the body is an uncompressed event stream.
pub(super) fn is_plain_event_stream(headers: &HeaderMap) -> bool {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let media_type = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    let plain = matches!(text(CONTENT_ENCODING).trim(), "" | "identity");
    media_type.eq_ignore_ascii_case("text/event-stream") && plain
}

/// The headers back to the caller. `x-service-*` headers of the provider are removed.
pub(super) fn to_caller(mut headers: HeaderMap) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    strip_ours(&mut headers);
    headers
}

fn strip_ours(headers: &mut HeaderMap) {
    let ours: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(OURS)).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Removes hop-by-hop headers.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn credentials_and_hop_by_hop_headers_do_not_reach_the_provider() {
        let given = headers(&[
            ("authorization", "Bearer ours"),
            ("x-api-key", "theirs"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "x"),
            ("upgrade", "h2c"),
            ("host", "gateway"),
            ("expect", "100-continue"),
            ("x-service-metadata", "{}"),
            ("x-service-anything", "1"),
            ("content-type", "application/json"),
            ("x-custom", "kept"),
        ]);
        let kept = to_provider(given, &[Slot::Authorization]);
        let expected =
            headers(&[("x-api-key", "theirs"), ("content-type", "application/json"), ("x-custom", "kept")]);
        assert_eq!(kept, expected);
    }

    #[test]
    fn the_provider_key_replaces_the_credential() {
        let mut map = to_provider(headers(&[("x-api-key", "ours")]), &[Slot::Plain("x-api-key")]);
        set_provider_key(&mut map, Slot::Plain("x-api-key"), "sk-1").unwrap();
        assert_eq!(map["x-api-key"], "sk-1");
        assert!(set_provider_key(&mut map, Slot::Authorization, "a\nb").is_err());
    }
}
