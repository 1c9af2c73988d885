//! Where a call goes: the provider's URL out of the query string, byte for byte, and what of the query is ours.
//! Pure. The URL is parsed once, by the parser that also dials, so that no two readings of it can differ.

#[cfg(test)]
mod fuzz;

use http::Uri;

/// The longest URL that is forwarded, in bytes.
const MAX_URL: usize = 16 * 1024;

/// Why there is nowhere to go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// No `u`.
    #[error("the query parameter `u` is missing")]
    Missing,
    /// `u` is not a URL that can be forwarded to.
    #[error("the provider URL {0}")]
    Invalid(&'static str),
}

/// A query string, read without changing it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Query<'a> {
    /// `u`, as it came.
    url: Option<&'a str>,
    repeated_url: bool,
    /// `metadata`, decoded.
    pub(super) metadata: Option<String>,
    /// Every `key`, decoded; a credential if it reads as one, else the provider's.
    pub(super) keys: Vec<String>,
    /// All but `u` and `metadata`, in order and as they came.
    rest: Vec<&'a str>,
}

impl<'a> Query<'a> {
    /// Reads a raw query string.
    pub(super) fn read(raw: &'a str) -> Self {
        let mut query = Self::default();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match decode(name, Plus::IsSpace).as_deref() {
                Some("u") => {
                    query.repeated_url |= query.url.is_some();
                    query.url = Some(value);
                }
                Some("metadata") => query.metadata = decode(value, Plus::IsSpace).or(Some(String::new())),
                Some("key") => {
                    query.keys.extend(decode(value, Plus::Stays));
                    query.rest.push(pair);
                }
                _ => query.rest.push(pair),
            }
        }
        query
    }

    /// The URL to call: `u` with the rest of the query, less `key` where that carried the credential, whose
    /// place the provider's own key may take.
    pub(super) fn target(&self, key: KeyParameter, provider_key: Option<&str>) -> Result<Uri, Error> {
        let given = self.url.filter(|url| !url.is_empty()).ok_or(Error::Missing)?;
        if self.repeated_url {
            return Err(Error::Invalid("is given more than once"));
        }
        // Raw, it is read as it came; its escapes are its own. Encoded, it is decoded once.
        let is_raw = |scheme: &str| given.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme));
        let mut url = if is_raw("http://") || is_raw("https://") {
            given.to_owned()
        } else {
            decode(given, Plus::Stays).ok_or(Error::Invalid("is not valid UTF-8 once decoded"))?
        };
        url.truncate(url.find('#').unwrap_or(url.len()));
        for pair in &self.rest {
            let name = pair.split('=').next().unwrap_or_default();
            if key == KeyParameter::IsCredential && decode(name, Plus::IsSpace).as_deref() == Some("key") {
                continue;
            }
            append(&mut url, pair);
        }
        if let Some(provider_key) = provider_key {
            append(&mut url, &format!("key={}", encode(provider_key)));
        }
        check(&url)
    }
}

/// Is the host a number, or ends in one, without being a plain IPv4 address (`127.1`, `0x7f000001`)? Resolvers read
/// such hosts as addresses; we take only the one plain way to write one.
fn is_numeric_shorthand(authority: &str) -> bool {
    if authority.starts_with('[') {
        return false;
    }
    let host = authority.split(':').next().unwrap_or_default().trim_end_matches('.');
    let last = host.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"));
    let numeric = hexadecimal || last.bytes().all(|byte| byte.is_ascii_digit());
    numeric && host.parse::<std::net::Ipv4Addr>().is_err()
}

/// Is the host an IPv6 address in brackets, with nothing but a port behind it?
fn is_bracketed_address(authority: &str) -> bool {
    let host = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    host.is_some_and(|(host, rest)| {
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let ends = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        ends && host.parse::<std::net::Ipv6Addr>().is_ok()
    })
}

/// The host and port that a URL leads to, in the one form in which they can be compared.
pub(super) fn destination(target: &Uri) -> (String, u16) {
    let port = target.port_u16().unwrap_or(if target.scheme_str() == Some("https") { 443 } else { 80 });
    (plain_host(target.host().unwrap_or_default()), port)
}

/// A host in the one form in which it can be compared.
pub(super) fn plain_host(host: &str) -> String {
    let bare = host.trim_matches(['[', ']']);
    match bare.parse::<std::net::IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase(),
    }
}

/// Is the query parameter `key` the credential or the provider's own?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyParameter {
    /// Ours: it never reaches the provider.
    IsCredential,
    /// The provider's: it is passed on.
    IsProviders,
}

/// The values of `key` in a URL's own query, decoded.
pub(super) fn keys_within(target: &Uri) -> Vec<String> {
    Query::read(target.query().unwrap_or_default()).keys
}

fn append(url: &mut String, pair: &str) {
    url.push(if url.contains('?') { '&' } else { '?' });
    url.push_str(pair);
}

/// Percent-encodes all but unreserved characters.
fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// The URL, if it is one that may be called at all; else the end of a sentence about it.
pub(crate) fn checked(url: &str) -> Result<Uri, &'static str> {
    check(url).map_err(|error| match error {
        Error::Missing => "is missing",
        Error::Invalid(why) => why,
    })
}

fn check(url: &str) -> Result<Uri, Error> {
    if url.len() > MAX_URL {
        return Err(Error::Invalid("is too long"));
    }
    if url.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
        return Err(Error::Invalid("holds control characters, blanks or characters outside ASCII"));
    }
    if url.contains('\\') {
        return Err(Error::Invalid("holds a backslash"));
    }
    let (scheme, rest) = url.split_once("://").ok_or(Error::Invalid("is not absolute"))?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(Error::Invalid("must be http or https"));
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Error::Invalid("holds user information"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if authority.is_empty() || !authority.bytes().all(plain) {
        return Err(Error::Invalid("has no valid host"));
    }
    if authority.contains(['[', ']']) && !is_bracketed_address(authority) {
        return Err(Error::Invalid("has no valid host"));
    }
    if is_numeric_shorthand(authority) {
        return Err(Error::Invalid("names an address in an unusual way"));
    }
    let uri: Uri = url.parse().map_err(|_| Error::Invalid("is not a valid URL"))?;
    let port_is_valid = uri.authority().is_some_and(|authority| {
        let port = authority.as_str().rsplit_once(':').map_or("", |(_, port)| port);
        let written = !authority.as_str().ends_with(']') && authority.as_str().contains(':');
        !written || (!port.starts_with('0') && port.parse::<u16>().is_ok())
    });
    if uri.host().is_none_or(str::is_empty) || !port_is_valid {
        return Err(Error::Invalid("has no valid host"));
    }
    Ok(uri)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    IsSpace,
    Stays,
}

/// Percent-decodes; none where the result is not UTF-8. A `%` without two digits stays as it is.
fn decode(text: &str, plus: Plus) -> Option<String> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        match (*first, digit(rest.first()), digit(rest.get(1))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high * 16 + low).unwrap_or(0));
                bytes = rest.get(2..).unwrap_or_default();
            }
            (b'+', ..) if plus == Plus::IsSpace => decoded.push(b' '),
            (byte, ..) => decoded.push(byte),
        }
    }
    String::from_utf8(decoded).ok()
}

/// Query parameters whose value is somebody's key.
const KEY_PARAMETERS: [&str; 8] =
    ["key", "api_key", "apikey", "api-key", "access_token", "token", "sig", "signature"];

/// The URL `text` as it may be kept: what stands in it as a key is masked.
pub(super) fn without_keys(text: &str) -> String {
    let Some((before, query)) = text.split_once('?') else { return text.to_owned() };
    let masked = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if KEY_PARAMETERS.iter().any(|key| name.eq_ignore_ascii_case(key)) => {
            format!("{name}=****")
        }
        Some(_) | None => pair.to_owned(),
    });
    format!("{before}?{}", masked.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_others_are_masked_where_a_url_is_kept() {
        let masked = without_keys("https://a.example/v1?alt=sse&key=AIza&Api_Key=x&monkey=1&token");
        assert_eq!(masked, "https://a.example/v1?alt=sse&key=****&Api_Key=****&monkey=1&token");
        assert_eq!(without_keys("https://a.example/key=1"), "https://a.example/key=1");
    }

    fn target(query: &str) -> Result<String, Error> {
        Query::read(query).target(KeyParameter::IsProviders, None).map(|uri| uri.to_string())
    }

    #[test]
    fn u_is_read_encoded_or_raw() {
        for (query, url) in [
            ("u=https%3A%2F%2Fapi.x.ai%2Fv1%2Fmodels%3Fa%3D1%26b%3D2", "https://api.x.ai/v1/models?a=1&b=2"),
            ("u=https://api.x.ai/v1/models?a=1&b=2", "https://api.x.ai/v1/models?a=1&b=2"),
            ("u=https://api.x.ai/v1/models&b=2&a=%2F+x", "https://api.x.ai/v1/models?b=2&a=%2F+x"),
            ("z=1&u=https://api.x.ai/p%20q&y", "https://api.x.ai/p%20q?z=1&y"),
            ("u=https://api.x.ai/a%2Fb/../c?q=%7B%7D", "https://api.x.ai/a%2Fb/../c?q=%7B%7D"),
            ("u=http%3A%2F%2Fh%2Fa%252Fb%23frag", "http://h/a%2Fb"),
            ("metadata=%7B%7D&u=https://h/&a=b&a=c", "https://h/?a=b&a=c"),
            ("u=HTTPS://h:8443/x", "https://h:8443/x"),
        ] {
            assert_eq!(target(query).as_deref(), Ok(url), "{query}");
        }
    }

    #[test]
    fn a_url_that_could_be_read_two_ways_is_refused() {
        for url in [
            "https://user@h/",
            "https://user:pw@h/",
            "https://a%40b/",
            "ftp://h/",
            "file:///etc/passwd",
            "//h/",
            "/relative",
            "https://h\\@x/",
            "https:\\\\h/",
            "https://",
            "https:///x",
            "https://h:0/",
            "https://h:99999/",
            "https://h:/",
            "https://h:0443/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://1.2.3.4.5/",
            "https://h:80x/",
            "http://h[::1]/",
            "http://[::1]h/",
            "http://[::1].:80/",
            "http://[::1]80/",
            "http://[h]/",
            "http://[127.0.0.1]/",
            "https://h /",
            "https://h/\0",
            "https://h/\r\nX: y",
            "https://ħ/",
            "gopher://h",
            "javascript:alert(1)",
        ] {
            let encoded = encode(url);
            assert!(matches!(target(&format!("u={encoded}")), Err(Error::Invalid(_))), "{url:?}");
        }
        assert_eq!(target("a=b"), Err(Error::Missing));
        assert_eq!(target("u="), Err(Error::Missing));
        assert!(matches!(target("u=https://a/&u=https://b/"), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_destination_is_the_same_however_it_is_written() {
        for url in ["https://api.openai.com/x", "https://API.openai.com:443/", "https://api.openai.com./?a"] {
            assert_eq!(destination(&url.parse().unwrap()), ("api.openai.com".to_owned(), 443), "{url}");
        }
        assert_eq!(
            destination(&"http://[::ffff:127.0.0.1]:8/".parse().unwrap()),
            ("127.0.0.1".to_owned(), 8)
        );
        assert_eq!(destination(&"http://h/".parse().unwrap()), ("h".to_owned(), 80));
    }

    #[test]
    fn the_credential_key_is_left_out_and_only_it() {
        let query = Query::read("u=https://h/?key=in-url&a=1&key=cred&b=2");
        assert_eq!(query.keys, ["cred"]);
        let kept = query.target(KeyParameter::IsProviders, None).unwrap();
        assert_eq!(kept.to_string(), "https://h/?key=in-url&a=1&key=cred&b=2");
        let left_out = query.target(KeyParameter::IsCredential, None).unwrap();
        assert_eq!(left_out.to_string(), "https://h/?key=in-url&a=1&b=2");
        let replaced = query.target(KeyParameter::IsCredential, Some("a b&c")).unwrap();
        assert_eq!(replaced.to_string(), "https://h/?key=in-url&a=1&b=2&key=a%20b%26c");
    }
}
