//! The target of a call: reads the provider's URL and the gateway's own parameters from the query string, byte for byte.
//! The URL is parsed once, by the parser that the dialer also uses, so that the two cannot differ. Pure.

use std::borrow::Cow;

#[cfg(test)]
mod fuzz;
mod masking;

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub(super) use self::masking::without_keys;
use crate::error::{ApiError, ForwardError};

/// The longest URL that is forwarded, in bytes.
const MAX_URL: usize = 16 * 1024;

/// All characters but the unreserved ones.
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why a query names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// `u` is missing.
    #[error("the query parameter `u` is missing")]
    Missing,
    /// `u` is not a URL that can be forwarded to.
    #[error("the provider URL {0}")]
    Invalid(&'static str),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self::Forward(match error {
            Error::Missing => ForwardError::UrlMissing,
            Error::Invalid(why) => ForwardError::UrlInvalid(why),
        })
    }
}

/// A query string, split but otherwise unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Query<'a> {
    /// `u`, undecoded, or the URL in the path.
    url: Option<Cow<'a, str>>,
    repeated_url: bool,
    /// Every `metadata`, decoded; empty if it is not UTF-8 then.
    pub(super) metadata: Vec<String>,
    /// Every `key`, decoded: a credential if it has the form of one, else a provider key. What is not UTF-8 once decoded
    /// becomes U+FFFD.
    pub(super) keys: Vec<String>,
    /// All parameters except `u` and `metadata`, in order and undecoded.
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
                    query.url = Some(value.into());
                }
                Some("metadata") => query.metadata.push(decode(value, Plus::IsSpace).unwrap_or_default()),
                Some("key") => {
                    query.keys.push(percent_decode_str(value).decode_utf8_lossy().into_owned());
                    query.rest.push(pair);
                }
                _ => query.rest.push(pair),
            }
        }
        query
    }

    /// The same query with the provider's URL from the path, `given`, which must be raw: what a client library appends to it
    /// is not to be decoded. Proxies may make one slash of two. There must be no `u` beside it.
    pub(super) fn with_url_in_path(&self, given: &str) -> Result<Self, Error> {
        let absolute = ["http:/", "https:/"].iter().find(|scheme| begins_with(given, scheme)).map(|scheme| {
            let (scheme, rest) = given.split_at(scheme.len());
            format!("{scheme}/{}", rest.strip_prefix('/').unwrap_or(rest))
        });
        let absolute =
            absolute.ok_or(Error::Invalid("in the path must begin with https:// or http://, unencoded"))?;
        Ok(Self { url: Some(absolute.into()), repeated_url: self.url.is_some(), ..self.clone() })
    }

    /// The URL to call: `u` with the rest of the query. A `key` that carried the credential is removed, and replaced by
    /// `provider_key` if given.
    pub(super) fn target(&self, key: KeyParameter, provider_key: Option<&str>) -> Result<Uri, Error> {
        let given = self.url.as_deref().filter(|url| !url.is_empty()).ok_or(Error::Missing)?;
        if self.repeated_url {
            return Err(Error::Invalid("is given more than once"));
        }
        // A raw URL is used as it is; an encoded one is decoded once.
        let url = if is_raw(given) { given.to_owned() } else { decoded_once(given)? };
        self.added_to(url, key, provider_key, |_| false)
    }

    /// The URL to call: `url`, which stands elsewhere, with the rest of the query but for the parameters that
    /// `is_left_out`. A `key` that carried the credential is removed.
    pub(super) fn of_url(
        &self,
        url: String,
        key: KeyParameter,
        is_left_out: impl Fn(&str) -> bool,
    ) -> Result<Uri, Error> {
        self.added_to(url, key, None, is_left_out)
    }

    /// The value of the parameter `name`, decoded.
    pub(super) fn value_of(&self, name: &str) -> Option<String> {
        let mut named = self.rest.iter().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) = named.find(|(given, _)| decode(given, Plus::IsSpace).as_deref() == Some(name))?;
        decode(value, Plus::IsSpace)
    }

    fn added_to(
        &self,
        mut url: String,
        key: KeyParameter,
        provider_key: Option<&str>,
        is_left_out: impl Fn(&str) -> bool,
    ) -> Result<Uri, Error> {
        url.truncate(url.find('#').unwrap_or(url.len()));
        for pair in &self.rest {
            let name = decode(pair.split('=').next().unwrap_or_default(), Plus::IsSpace);
            let is_credential = key == KeyParameter::IsCredential && name.as_deref() == Some("key");
            if is_credential || name.as_deref().is_some_and(&is_left_out) {
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

/// Whether a `u` is raw: it begins with its scheme, and its query is not encoded.
fn is_raw(given: &str) -> bool {
    let has_scheme = begins_with(given, "http://") || begins_with(given, "https://");
    has_scheme && !has_encoded_query(given)
}

/// Whether the query of `given`, whose `?` is raw, has each `=` and each `&` encoded. Some clients encode only what would end the
/// parameter `u`; no provider has a query like that.
fn has_encoded_query(given: &str) -> bool {
    let query = given.split_once('?').map_or("", |(_, query)| query);
    !query.contains(['=', '&']) && (query.contains("%3D") || query.contains("%3d"))
}

/// Whether the host ends in a number without being a plain IPv4 address (`127.1`, `0x7f000001`). Resolvers read such
/// hosts as addresses; only plain IPv4 addresses are accepted.
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

/// Whether the host is an IPv6 address in brackets, followed by nothing but a port.
fn is_bracketed_address(authority: &str) -> bool {
    let host = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    host.is_some_and(|(host, rest)| {
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let ends = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        ends && host.parse::<std::net::Ipv6Addr>().is_ok()
    })
}

/// The normalised host and port of a URL, for comparison.
pub(super) fn destination(target: &Uri) -> (String, u16) {
    let port = target.port_u16().unwrap_or(if target.scheme_str() == Some("https") { 443 } else { 80 });
    (plain_host(target.host().unwrap_or_default()), port)
}

/// A normalised host, for comparison.
pub(super) fn plain_host(host: &str) -> String {
    let bare = host.trim_matches(['[', ']']);
    match bare.parse::<std::net::IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase(),
    }
}

/// The meaning of the query parameter `key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyParameter {
    /// A credential of this service, which never reaches the provider.
    IsCredential,
    /// A provider key, which is passed on.
    IsProviders,
}

/// The values of `key` in a URL's own query, decoded.
pub(super) fn keys_within(target: &Uri) -> Vec<String> {
    Query::read(target.query().unwrap_or_default()).keys
}

/// The names and values of a URL's own query, decoded; one that is not UTF-8 stays encoded.
pub(crate) fn parameters(target: &Uri) -> impl Iterator<Item = (String, String)> {
    let decoded = |text: &str| decode(text, Plus::IsSpace).unwrap_or_else(|| text.to_owned());
    let pairs = target.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

/// Whether `text` begins with `prefix` in any case.
pub(crate) fn begins_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
}

/// `text`, percent-decoded once.
pub(crate) fn decoded_once(text: &str) -> Result<String, Error> {
    decode(text, Plus::Stays).ok_or(Error::Invalid("is not valid UTF-8 once decoded"))
}

fn append(url: &mut String, pair: &str) {
    url.push(if url.contains('?') { '&' } else { '?' });
    url.push_str(pair);
}

/// Percent-encodes all but unreserved characters (RFC 3986 section 2.3).
fn encode(text: &str) -> String {
    utf8_percent_encode(text, &RESERVED).to_string()
}

/// The parsed URL if it can be called; otherwise the end of a sentence about it.
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
        return Err(Error::Invalid("contains control characters, spaces or non-ASCII characters"));
    }
    if url.contains('\\') {
        return Err(Error::Invalid("contains a backslash"));
    }
    let (scheme, rest) = url.split_once("://").ok_or(Error::Invalid("is not absolute"))?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(Error::Invalid("must be http or https"));
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Error::Invalid("contains user information"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if authority.is_empty() || !authority.bytes().all(plain) {
        return Err(Error::Invalid("has no valid host"));
    }
    if authority.contains(['[', ']']) && !is_bracketed_address(authority) {
        return Err(Error::Invalid("has no valid host"));
    }
    if is_numeric_shorthand(authority) {
        return Err(Error::Invalid("does not write its IP address in plain form"));
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

/// Percent-decodes; `None` if the result is not UTF-8. A `%` without two digits stays as it is.
fn decode(text: &str, plus: Plus) -> Option<String> {
    let spaced = match plus {
        Plus::IsSpace => text.replace('+', " "),
        Plus::Stays => text.to_owned(),
    };
    percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn u_whose_query_alone_is_encoded_is_decoded_once() {
        for (query, url) in [
            ("u=https://h/p?alt%3Dsse%26x%3D1", "https://h/p?alt=sse&x=1"),
            ("u=https://h/p?alt%3dsse%26x%3d1", "https://h/p?alt=sse&x=1"),
            ("u=https://h?alt%3Dsse", "https://h/?alt=sse"),
            ("u=https://h/a%252Fb?q%3D%252F%26r%3Da@b/c?d:e", "https://h/a%2Fb?q=%2F&r=a@b/c?d:e"),
            ("z=9&u=https://h/p?alt%3Dsse&b=2", "https://h/p?alt=sse&z=9&b=2"),
            ("u=https://h/p?alt%3Dsse%23fragment", "https://h/p?alt=sse"),
            ("u=https://h%2Fp?alt%3Dsse", "https://h/p?alt=sse"),
            // A raw `=` says that the query is raw.
            ("u=https://h/p?a=b%3D%26c%3D1", "https://h/p?a=b%3D%26c%3D1"),
            ("u=https://h/p?a%3Db=c", "https://h/p?a%3Db=c"),
            // And so does a query, or a path, that has no `=` to encode.
            ("u=https://h/p?a%26b", "https://h/p?a%26b"),
            ("u=https://h/p%3Da?b", "https://h/p%3Da?b"),
            ("u=https://h/p%3Fa%3Db", "https://h/p%3Fa%3Db"),
            // The same, fully encoded.
            ("u=https%3A%2F%2Fh%2Fp%3Falt%3Dsse%26x%3D1", "https://h/p?alt=sse&x=1"),
        ] {
            assert_eq!(target(query).as_deref(), Ok(url), "{query}");
        }
        let keyed = Query::read("u=https://h/p?a%3Db%26key%3Dk%2B1").target(KeyParameter::IsCredential, None);
        assert_eq!(keys_within(&keyed.unwrap()), ["k+1"]);
    }

    #[test]
    fn what_an_encoded_query_hides_is_refused_as_in_a_url_that_is_encoded_throughout() {
        for url in [
            "https://h/p?a%3Db%20c",
            "https://h/p?a%3Db%00",
            "https://h/p?a%3Db%0D%0AX:y",
            "https://h/p?a%3D%C3%A9",
            "https://h/p?a%3D%FF",
            "https://h/p?a%3D%5C",
            "https://u%40h/p?a%3Db",
            "https://u@h/p?a%3Db",
            "https://h%5C@i/p?a%3Db",
            "https://127.1/?a%3Db",
            "https://h%3A0/?a%3Db",
        ] {
            let throughout = url.replace(':', "%3A").replace('/', "%2F").replace('?', "%3F");
            let throughout = throughout.replace('@', "%40");
            let refused = target(&format!("u={url}"));
            assert!(matches!(refused, Err(Error::Invalid(_))), "{url}: {refused:?}");
            assert_eq!(refused, target(&format!("u={throughout}")), "{url}");
        }
    }

    fn target_in_path(given: &str, query: &str) -> Result<String, Error> {
        let query = Query::read(query).with_url_in_path(given)?;
        query.target(KeyParameter::IsCredential, None).map(|uri| uri.to_string())
    }

    #[test]
    fn a_url_in_the_path_is_called_as_it_is() {
        for (given, query, url) in [
            ("https://api.x.ai", "", "https://api.x.ai/"),
            ("https://api.x.ai/v1/m:do", "alt=sse&key=spk_k&b=%2F", "https://api.x.ai/v1/m:do?alt=sse&b=%2F"),
            ("HTTPS://h:8443/x", "metadata=%7B%7D", "https://h:8443/x"),
            ("https:/h/x", "", "https://h/x"),
            ("http:/h//x", "", "http://h//x"),
            // Encoded characters stay, and so does what a reader of paths would resolve.
            ("https://h/a%2Fb%3Fc%23d%40e/../f", "g=h", "https://h/a%2Fb%3Fc%23d%40e/../f?g=h"),
            ("https://h/https://i/x", "", "https://h/https://i/x"),
        ] {
            assert_eq!(target_in_path(given, query).as_deref(), Ok(url), "{given} {query}");
        }
        for given in [
            "h/x",
            "v1beta/models/m:generateContent",
            "https%3A%2F%2Fh%2Fx",
            "https%3A//h/x",
            "/https://h/x",
            "ftp://h/x",
            "https:h/x",
            "https:///h/x",
            "https:////h/x",
            "https://user@h/x",
            "https://user:pw@h/x",
            "https://h%40i/x",
            "https://h%2Fi/x",
            "https://h%23i/x",
            "https://h%3Fi/x",
            "https://h\\@i/x",
            "https://h:0/x",
            "https://0x7f.1/x",
            "https:/",
            "https://",
        ] {
            assert!(matches!(target_in_path(given, ""), Err(Error::Invalid(_))), "{given}");
        }
        // The provider has one URL.
        for query in ["u=https://i/y", "a=b&u=https://h/x", "%75=", "u=https://h/x&u=https://h/x"] {
            let twice = Err(Error::Invalid("is given more than once"));
            assert_eq!(target_in_path("https://h/x", query), twice, "{query}");
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
