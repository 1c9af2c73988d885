//! Tests of the headers, also against the look-ups by name that they replace.

use proptest::prelude::*;

use super::*;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn credentials_traces_and_hop_by_hop_headers_do_not_reach_the_provider() {
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
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", "a=1"),
        ("tracestate", "b=2"),
        ("baggage", "user=1"),
        ("content-type", "application/json"),
        ("x-custom", "kept"),
    ]);
    let kept = to_provider(given, &[Slot::Authorization]);
    let expected =
        headers(&[("x-api-key", "theirs"), ("content-type", "application/json"), ("x-custom", "kept")]);
    assert_eq!(kept, expected);
}

#[test]
fn a_response_has_one_length_and_none_that_its_transfer_coding_overrides() {
    for (given, kept) in [
        (vec![("content-length", "46")], Some("46")),
        (vec![("content-length", "46, 46")], Some("46")),
        (vec![("content-length", " 46 "), ("content-length", "046")], Some("46")),
        (vec![("content-length", "5"), ("content-length", "46")], None),
        (vec![("content-length", "5, 46")], None),
        (vec![("content-length", "5,")], None),
        (vec![("content-length", "+5")], None),
        (vec![("content-length", "-5")], None),
        (vec![("content-length", "0x5")], None),
        (vec![("content-length", "99999999999999999999")], None),
        (vec![("content-length", "")], None),
        (vec![("content-length", "2"), ("transfer-encoding", "chunked")], None),
        (vec![("transfer-encoding", "chunked"), ("content-length", "2")], None),
        (vec![("content-length", "2"), ("transfer-encoding", "identity")], None),
        (vec![("content-length", "2"), ("transfer-encoding", "")], None),
        (
            vec![
                ("content-length", "2"),
                ("connection", "transfer-encoding"),
                ("transfer-encoding", "chunked"),
            ],
            None,
        ),
    ] {
        let expected: Vec<_> = kept.iter().map(|length| ("content-length", *length)).collect();
        assert_eq!(to_caller(headers(&given)), headers(&expected), "{given:?}");
    }
    let mut odd = HeaderMap::new();
    odd.insert(CONTENT_LENGTH, HeaderValue::from_bytes(b"5\xff").unwrap());
    assert_eq!(to_caller(odd), HeaderMap::new());
}

#[test]
fn a_managed_call_to_bedrock_chooses_no_feature_and_no_signature() {
    let kept = headers(&[("accept", "*/*"), ("x-amzn-bedrock-accept", "application/json")]);
    let mut given = kept.clone();
    given.insert("x-amz-security-token", HeaderValue::from_static("t"));
    given.insert("anthropic-beta", HeaderValue::from_static("context-1m-2025-08-07"));
    assert_eq!(fit_managed_key_of_bedrock(&mut given), Ok(()));
    assert_eq!(given, kept);
    for name in [
        "x-amzn-bedrock-guardrailidentifier",
        "x-amzn-bedrock-performanceconfig-latency",
        "x-amzn-bedrock-service-tier",
    ] {
        let mut given = headers(&[("accept", "*/*"), (name, "x")]);
        assert_eq!(fit_managed_key_of_bedrock(&mut given), Err(HeaderName::from_static(name)));
    }
}

#[test]
fn no_cache_shares_a_response() {
    for (given, shown) in [
        (vec![], "private"),
        (vec!["no-store"], "private, no-store"),
        (vec!["no-cache"], "private, no-cache"),
        (vec!["Public, max-age=60, s-maxage=600"], "private, max-age=60"),
        (vec!["PRIVATE=\"x\", no-cache"], "private, no-cache"),
        (vec!["public", "no-store,, S-MaxAge = 1"], "private, no-store"),
        (vec![""], "private"),
    ] {
        let mut headers = HeaderMap::new();
        for value in &given {
            headers.append(CACHE_CONTROL, HeaderValue::from_static(value));
        }
        confine(&mut headers);
        assert_eq!(headers.get_all(CACHE_CONTROL).iter().collect::<Vec<_>>(), [shown], "{given:?}");
    }
    let mut headers = HeaderMap::new();
    headers.append(CACHE_CONTROL, HeaderValue::from_bytes(b"public\xff").unwrap());
    confine(&mut headers);
    assert_eq!(headers[CACHE_CONTROL], "private, no-store");
}

#[test]
fn a_delivery_is_known_behind_other_services_too() {
    for (value, is_ours) in [
        ("farthing", true),
        (" Farthing ;v=1", true),
        ("cdn.example, farthing", true),
        ("farthing.example", false),
        ("cdn.example; by=farthing", false),
        ("", false),
    ] {
        assert_eq!(is_of_a_webhook(&headers(&[("cdn-loop", value)])), is_ours, "{value}");
    }
    assert!(is_of_a_webhook(&headers(&[("cdn-loop", "a"), ("cdn-loop", "farthing")])));
    assert!(!is_of_a_webhook(&headers(&[("user-agent", "farthing")])));
}

#[test]
fn the_provider_key_replaces_the_credential_or_goes_where_its_provider_takes_it() {
    let given = || to_provider(headers(&[("x-api-key", "ours")]), &[Slot::Plain("x-api-key")]);
    for (place, expected) in [
        (KeyPlace::Carrier(Slot::Plain("x-api-key")), ("x-api-key", "sk-1")),
        (KeyPlace::Carrier(Slot::Authorization), ("authorization", "Bearer sk-1")),
        (KeyPlace::Providers(KeySlot::Header("x-goog-api-key")), ("x-goog-api-key", "sk-1")),
        (KeyPlace::Providers(KeySlot::Bearer), ("authorization", "Bearer sk-1")),
    ] {
        let mut map = given();
        set_provider_key(&mut map, place, "sk-1").unwrap();
        assert_eq!(map, headers(&[expected]), "{place:?}");
        assert!(set_provider_key(&mut map, place, "a\nb").is_err());
    }
}

/// What these functions do, told with a look-up of every name.
mod by_look_ups {
    use super::*;

    fn remove_all(headers: &mut HeaderMap, names: &[&'static str]) {
        for name in names {
            headers.remove(*name);
        }
    }

    fn strip_hop_by_hop(headers: &mut HeaderMap) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
        let of_one_hop = [
            "connection",
            "keep-alive",
            "proxy-connection",
            "proxy-authenticate",
            "proxy-authorization",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "expect",
        ];
        remove_all(headers, &of_one_hop);
    }

    pub(super) fn to_provider(mut headers: HeaderMap) -> HeaderMap {
        strip_hop_by_hop(&mut headers);
        headers.remove(HOST);
        strip_ours(&mut headers);
        remove_all(&mut headers, &["traceparent", "tracestate", "baggage", "authorization"]);
        headers
    }

    pub(super) fn to_caller(mut headers: HeaderMap) -> HeaderMap {
        if headers.contains_key(CONTENT_LENGTH) {
            fit_length(&mut headers);
        }
        strip_hop_by_hop(&mut headers);
        strip_ours(&mut headers);
        headers.remove("idempotency-replayed");
        remove_where(&mut headers, speaks_to_a_proxy);
        headers
    }

    pub(super) fn fit_managed_key(mut headers: HeaderMap) -> HeaderMap {
        let names = [
            "content-encoding",
            "x-http-method",
            "x-http-method-override",
            "x-method-override",
            "openai-organization",
            "openai-project",
            "x-goog-fieldmask",
            "x-goog-user-project",
            "x-hf-bill-to",
            "nvcf-poll-seconds",
            "range",
            "prefer",
        ];
        remove_all(&mut headers, &names);
        headers
    }

    const KEYS: [&str; 6] =
        ["authorization", "x-api-key", "x-goog-api-key", "xi-api-key", "api-key", "x-provider-api-key"];

    pub(super) fn own_keys(headers: &HeaderMap) -> Vec<(&'static str, HeaderValue)> {
        let values =
            |name: &'static str| headers.get_all(name).iter().map(move |value| (name, value.clone()));
        KEYS.into_iter().flat_map(values).collect()
    }

    pub(super) fn without_secrets(mut headers: HeaderMap) -> HeaderMap {
        remove_all(&mut headers, &KEYS);
        remove_all(&mut headers, &["cookie", "ocp-apim-subscription-key", "x-amz-security-token"]);
        remove_all(&mut headers, &["content-md5", "digest", "content-digest", "repr-digest"]);
        headers
    }

    pub(super) fn is_of_a_browser_itself(headers: &HeaderMap) -> Option<&'static str> {
        let any = |name: &'static str, is_sign: fn(&[u8]) -> bool| {
            headers.get_all(name).iter().any(|value| is_sign(value.as_bytes())).then_some(name)
        };
        let ahead: fn(&[u8]) -> bool =
            |value| value.trim_ascii().to_ascii_lowercase().starts_with(b"prefetch");
        any("service-worker", |_| true)
            .or_else(|| any("sec-fetch-mode", |value| value.eq_ignore_ascii_case(b"navigate")))
            .or_else(|| ["sec-purpose", "purpose", "x-moz"].into_iter().find_map(|name| any(name, ahead)))
            .or_else(|| any("sec-fetch-dest", |value| !value.eq_ignore_ascii_case(b"empty")))
    }
}

/// A name of more than 64 bytes, which the HTTP library reads in another way than shorter ones.
const LONG: &str = "x-long-0123456789-0123456789-0123456789-0123456789-0123456789-0123";

/// Names of all kinds, among them some that are as long as another kind's.
const NAMES: [&str; 66] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "host",
    "x-service-metadata",
    "x-service-a",
    "x-service-request-id",
    "traceparent",
    "tracestate",
    "baggage",
    "idempotency-replayed",
    "x-sendfile",
    "x-accel-redirect",
    "x-accel-buffering",
    "x-lighttpd-send-file",
    "x-reproxy-url",
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "xi-api-key",
    "api-key",
    "x-provider-api-key",
    "cookie",
    "ocp-apim-subscription-key",
    "x-amz-security-token",
    "content-encoding",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "openai-organization",
    "openai-project",
    "x-goog-fieldmask",
    "x-goog-user-project",
    "x-hf-bill-to",
    "nvcf-poll-seconds",
    "range",
    "prefer",
    "content-md5",
    "digest",
    "content-digest",
    "repr-digest",
    "service-worker",
    "sec-fetch-mode",
    "sec-purpose",
    "purpose",
    "x-moz",
    "sec-fetch-dest",
    "close",
    "x-hop",
    "x-a",
    "user-agent",
    "accept",
    "accept-encoding",
    "content-type",
    "x-custom",
    "x-servic",
    "x-idempotency-replay",
    LONG,
];

const VALUES: [&[u8]; 20] = [
    b"",
    b"1",
    b"2",
    b"close",
    b"keep-alive",
    b"Keep-Alive, X-Hop,,TE , x-a",
    b"Content-Length, x-service-a, Authorization",
    b"X-LONG-0123456789-0123456789-0123456789-0123456789-0123456789-0123, close",
    b"transfer-encoding, accept encoding, Connection",
    b"x-hop, X-A\xff",
    b"46",
    b"46, 46",
    b"chunked",
    b"navigate",
    b"Navigate",
    b"empty",
    b"EMPTY",
    b"Prefetch;prerender",
    b" prefetch",
    b"prefetc",
];

/// The headers in the order in which they are written.
fn in_order(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_source_file(file!()))]

    #[test]
    fn what_passes_and_its_order_are_those_of_a_look_up_of_every_name(
        pairs in proptest::collection::vec(
            (proptest::sample::select(NAMES.to_vec()), proptest::sample::select(VALUES.to_vec())),
            0..24,
        ),
        connections in
            proptest::collection::vec((0..24_usize, proptest::sample::select(VALUES.to_vec())), 0..3),
    ) {
        let (mut given, mut pairs) = (HeaderMap::new(), pairs);
        for (place, value) in connections {
            pairs.insert(place.min(pairs.len()), ("connection", value));
        }
        for (name, value) in pairs {
            given.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        let sent = to_provider(given.clone(), &[Slot::Authorization]);
        prop_assert_eq!(in_order(&sent), in_order(&by_look_ups::to_provider(given.clone())));
        prop_assert_eq!(
            in_order(&to_caller(given.clone())),
            in_order(&by_look_ups::to_caller(given.clone()))
        );
        prop_assert_eq!(own_keys(&given), by_look_ups::own_keys(&given));
        prop_assert_eq!(is_of_a_browser_itself(&given), by_look_ups::is_of_a_browser_itself(&given));
        let mut managed = given.clone();
        fit_managed_key(&mut managed);
        prop_assert_eq!(in_order(&managed), in_order(&by_look_ups::fit_managed_key(given.clone())));
        let mut without = given.clone();
        without_own_keys(&mut without);
        without_digests(&mut without);
        prop_assert_eq!(in_order(&without), in_order(&by_look_ups::without_secrets(given)));
    }
}
