//! Which headers pass in which direction. Pure. All pass unchanged but hop-by-hop ones, ours, and the slot that
//! carried the credential.

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

/// The prefix of the headers that are meant for us.
const OURS: &str = "x-service-";

/// Headers of one hop (RFC 9110 section 7.6.1), less `Connection` itself and what it names. `Expect` is answered
/// by us.
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

/// Where the provider's own key goes, when the credential brought one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// `Authorization: Bearer …`.
    Authorization,
    /// A header that holds nothing but the key.
    Plain(&'static str),
    /// The query parameter `key`.
    Query,
}

/// The headers that go to the provider. `credentials` are all slots that held a credential of ours.
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

/// The headers in which callers send keys of their own to a provider.
const KEY_HEADERS: [&str; 6] =
    ["authorization", "x-api-key", "x-goog-api-key", "xi-api-key", "api-key", "x-provider-api-key"];

/// The keys of the caller's own among what goes to the provider, with the headers that they stand in.
pub(super) fn own_keys(headers: &HeaderMap) -> Vec<(&'static str, HeaderValue)> {
    KEY_HEADERS
        .into_iter()
        .flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value.clone())))
        .collect()
}

/// Puts the provider's own key where the credential was.
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

/// Headers that tell of the exact bytes of a body.
const DIGESTS: [&str; 4] = ["content-md5", "digest", "content-digest", "repr-digest"];

/// Makes the headers fit a body of `length` bytes that is not the caller's own, and asks for an answer that can be
/// altered as well.
pub(super) fn fit_altered_body(headers: &mut HeaderMap, length: usize) {
    for name in DIGESTS {
        headers.remove(name);
    }
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Is it a stream of events that can be read as it stands?
pub(super) fn tell_of_plain_events(headers: &HeaderMap) -> bool {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let media_type = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    let plain = matches!(text(CONTENT_ENCODING).trim(), "" | "identity");
    media_type.eq_ignore_ascii_case("text/event-stream") && plain
}

/// The headers that go back to the caller: a provider cannot speak in our name.
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

/// Removes what concerns one hop only.
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
    fn only_what_is_the_providers_reaches_it() {
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
    fn the_providers_key_takes_the_place_of_ours() {
        let mut map = to_provider(headers(&[("x-api-key", "ours")]), &[Slot::Plain("x-api-key")]);
        set_provider_key(&mut map, Slot::Plain("x-api-key"), "sk-1").unwrap();
        assert_eq!(map["x-api-key"], "sk-1");
        assert!(set_provider_key(&mut map, Slot::Authorization, "a\nb").is_err());
    }
}
