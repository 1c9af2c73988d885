//! Fuzzing of the target's parser: compared with the `url` crate, which reads URLs as browsers do. `PROPTEST_CASES`
//! says how many cases are made.
//!
//! A URL that is accepted means the same to both readers, so that no second reader on the way to the provider can be
//! led to another host.

use std::net::IpAddr;

use proptest::prelude::*;
use url::{Host, Url, form_urlencoded};

use super::*;

/// A part of a URL, harmless or not.
fn token() -> impl Strategy<Value = String> {
    let tokens = &[
        "http://",
        "https://",
        "HTTP://",
        "//",
        "/",
        "\\",
        "?",
        "#",
        "@",
        ":",
        ":80",
        ":443",
        ":0",
        ":65536",
        ":08",
        "&",
        "=",
        "+",
        ".",
        "..",
        "/../",
        "%",
        "%2F",
        "%2e%2e",
        "%00",
        "%40",
        "[",
        "]",
        "[::1]",
        "[::ffff:7f00:1]",
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "0X7F.1",
        "017700000001",
        "2130706433",
        "1.2.3.4.",
        "localhost",
        "api.openai.com",
        "xn--",
        "xn--nxasmq6b",
        "user:pw",
        "a_b",
        "-",
        "key",
        "k%65y",
        "key=1",
        "&key=2",
        "u=",
        "metadata=",
        "\t",
        "\r\n",
        " ",
        "\u{e9}",
        "\u{ff0e}",
        "\u{0}",
        "\u{7f}",
        ";",
        "|",
        "{}",
        "<>\"`",
        "'",
        "*",
    ];
    prop_oneof![8 => prop::sample::select(&tokens[..]).prop_map(str::to_owned), 2 => "[a-z0-9]{1,3}", 1 => any::<String>()]
}

/// A text that may be a URL.
fn text() -> impl Strategy<Value = String> {
    let start = prop_oneof![6 => Just("http://"), 4 => Just("https://"), 1 => Just("")];
    (start, prop::collection::vec(token(), 0..8))
        .prop_map(|(start, tokens)| format!("{start}{}", tokens.concat()))
}

/// A URL's host and port by the `url` crate, in the form of [`destination`].
fn destination_of(url: &Url) -> (String, u16) {
    let host = match url.host().unwrap() {
        Host::Ipv4(address) => IpAddr::V4(address).to_string(),
        Host::Ipv6(address) => IpAddr::V6(address).to_canonical().to_string(),
        Host::Domain(name) => name.strip_suffix('.').unwrap_or(name).to_owned(),
    };
    (host, url.port_or_known_default().unwrap())
}

proptest! {
    #[test]
    fn an_accepted_url_means_the_same_to_another_reader(text in text()) {
        if let Ok(uri) = checked(&text) {
            match Url::parse(&text) {
                Ok(url) => {
                    prop_assert_eq!(Some(url.scheme()), uri.scheme_str());
                    prop_assert_eq!(destination_of(&url), destination(&uri));
                    prop_assert!(url.username().is_empty() && url.password().is_none());
                    let again = Url::parse(&uri.to_string()).unwrap();
                    prop_assert_eq!((again.path(), again.query()), (url.path(), url.query()));
                }
                // The other reader refuses an invalid Punycode host; the dialer looks it up and does not find it.
                Err(error) => {
                    let host = uri.host().unwrap();
                    prop_assert!(host.parse::<IpAddr>().is_err(), "{host}: {error}");
                    prop_assert!(host.contains("xn--"), "{host}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_url_is_called_as_it_was_given_in_the_query(text in text()) {
        let query = format!("u={}", encode(&text));
        let target = Query::read(&query).target(KeyParameter::IsProviders, None);
        let whole = text.split('#').next().unwrap();
        match checked(whole) {
            Ok(uri) => prop_assert_eq!(target, Ok(uri)),
            Err(_) => prop_assert!(target.is_err()),
        }
    }

    #[test]
    fn a_url_in_the_path_is_called_as_it_would_be_in_the_query(text in text()) {
        // The path of a request line has neither a query nor a fragment.
        let text = text.replace(['?', '#'], "");
        let in_path = Query::default().with_url_in_path(&text);
        let in_path = in_path.and_then(|query| query.target(KeyParameter::IsProviders, None));
        if text.contains("://") {
            let query = format!("u={}", encode(&text));
            let in_query = Query::read(&query).target(KeyParameter::IsProviders, None);
            prop_assert_eq!(in_path.ok(), in_query.ok());
        }
    }

    #[test]
    fn a_credential_in_the_query_never_reaches_the_provider(tokens in prop::collection::vec(token(), 0..12)) {
        // A request line has no fragment.
        let raw = format!("u=https://api.example/v1&{}", tokens.concat().replace('#', ""));
        let query = Query::read(&raw);
        if let Ok(uri) = query.target(KeyParameter::IsCredential, None) {
            let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
            let keys: Vec<_> = pairs.filter(|(name, _)| name == "key").collect();
            prop_assert!(keys.is_empty(), "{raw}: {uri}");
        }
    }

    #[test]
    fn parameters_are_told_apart_as_another_reader_tells_them(tokens in prop::collection::vec(token(), 0..12)) {
        let raw = tokens.concat();
        let pairs: Vec<_> = form_urlencoded::parse(raw.as_bytes()).collect();
        // The other reader replaces bytes that are not UTF-8 after decoding.
        if pairs.iter().any(|(name, value)| name.contains('\u{fffd}') || value.contains('\u{fffd}')) {
            return Ok(());
        }
        let query = Query::read(&raw);
        prop_assert_eq!(query.keys.len(), pairs.iter().filter(|(name, _)| name == "key").count());
        prop_assert_eq!(query.url.is_some(), pairs.iter().any(|(name, _)| name == "u"));
        let metadata = pairs.iter().filter(|(name, _)| name == "metadata").map(|(_, value)| value.as_ref());
        prop_assert_eq!(&query.metadata, &metadata.collect::<Vec<&str>>());
    }

    #[test]
    fn percent_encoding_is_undone_by_both_readers(text in any::<String>()) {
        let encoded = encode(&text);
        prop_assert_eq!(decode(&encoded, Plus::Stays), Some(text.clone()));
        let pairs: Vec<_> = form_urlencoded::parse(encoded.as_bytes()).collect();
        let read: String = pairs.first().map(|(name, _)| name.to_string()).unwrap_or_default();
        prop_assert_eq!(read, text);
    }

    #[test]
    fn any_query_does_no_harm(raw in any::<String>(), key in any::<String>()) {
        let query = Query::read(&raw);
        let _ = query.target(KeyParameter::IsCredential, Some(&key));
        let _ = without_keys(&raw);
        let _ = plain_host(&raw);
    }
}
