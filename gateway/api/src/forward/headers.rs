//! The headers that pass to the provider and back. All pass unchanged except hop-by-hop headers, `x-service-*` headers,
//! those of the caller's trace and the slots that carried the credential. Pure.

use farthing_worker::webhooks::LOOP_HEADER;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, HOST, HeaderName, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

use super::usage::is_uncompressed;
use crate::headers::{HOP_BY_HOP, LENGTH, Names, OF_ONE_HOP};
use crate::providers::KeySlot;

/// Says that this service replays a stored response.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The prefix of the gateway's own headers.
const OURS: &str = "x-service-";

/// The headers of the caller's own trace (W3C Trace Context and Baggage), by which a provider could tell which calls belong
/// together.
static TRACE: Names<3> = Names::new(["traceparent", "tracestate", "baggage"]);

/// Which headers of a provider pass to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseHeaders {
    /// Those that concern the call alone. Others are removed, and rules for browsers and caches are added.
    Confined,
    /// All but those that only this service may set.
    Unaltered,
}

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
    let found = Found::among(&headers);
    strip_hop_by_hop(&mut headers, found.of_one_hop);
    headers.remove(HOST);
    if found.ours {
        strip_ours(&mut headers);
    }
    TRACE.remove(&mut headers, found.of_a_trace);
    for slot in credentials {
        match slot {
            Slot::Authorization => headers.remove(http::header::AUTHORIZATION),
            Slot::Plain(name) => headers.remove(*name),
            Slot::Query => None,
        };
    }
    headers
}

/// What one pass finds among the headers of a message of what may not pass. Nothing of it is added afterwards, so what was
/// not found is not looked for.
#[derive(Debug, Default)]
struct Found {
    /// A set of [`OF_ONE_HOP`].
    of_one_hop: u32,
    /// A set of [`TRACE`].
    of_a_trace: u32,
    /// Headers of this service's own.
    ours: bool,
    /// [`IDEMPOTENCY_REPLAYED`].
    replayed: bool,
    /// Headers that [`speaks_to_a_proxy`] knows.
    to_a_proxy: bool,
}

impl Found {
    fn among(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys().map(HeaderName::as_str) {
            if let Some(place) = OF_ONE_HOP.place(name) {
                found.of_one_hop |= 1_u32 << place;
            } else if let Some(place) = TRACE.place(name) {
                found.of_a_trace |= 1_u32 << place;
            } else if name.starts_with(OURS) {
                found.ours = true;
            } else if name == IDEMPOTENCY_REPLAYED.as_str() {
                found.replayed = true;
            } else if speaks_to_a_proxy(name) {
                found.to_a_proxy = true;
            }
        }
        found
    }
}

/// The headers in which callers send their own provider keys.
static KEY_HEADERS: Names<6> = Names::new([
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "xi-api-key",
    "api-key",
    "x-provider-api-key",
]);

/// Further headers that hold a secret for one provider.
static OTHER_SECRETS: Names<3> = Names::new(["cookie", "ocp-apim-subscription-key", "x-amz-security-token"]);

/// The caller's own provider keys among the headers to the provider, by header name.
pub(super) fn own_keys(headers: &HeaderMap) -> Vec<(&'static str, HeaderValue)> {
    KEY_HEADERS
        .of(KEY_HEADERS.among(headers))
        .flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value.clone())))
        .collect()
}

/// Where a call carries the provider key of its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// Where its provider takes keys.
    Providers(KeySlot),
    /// In the slot that carried the credential: nothing is known of the provider.
    Carrier(Slot),
}

/// Puts the provider key into a header.
pub(super) fn set_provider_key(
    headers: &mut HeaderMap,
    place: KeyPlace,
    key: &str,
) -> Result<(), http::header::InvalidHeaderValue> {
    let slot = match place {
        KeyPlace::Providers(slot) => slot,
        KeyPlace::Carrier(Slot::Authorization | Slot::Query) => KeySlot::Bearer,
        KeyPlace::Carrier(Slot::Plain(name)) => KeySlot::Header(name),
    };
    let (name, prefix) = slot.name_and_prefix();
    let mut value = HeaderValue::try_from(format!("{prefix}{key}"))?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Headers that would make a provider read a call on a managed key in another way than the gateway does, leave a part of
/// the response out, or bill another account of the operator's.
static NOT_ON_MANAGED_KEYS: Names<12> = Names::new([
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
]);

/// Removes what a caller may not decide for a call on a managed provider key.
pub(super) fn fit_managed_key(headers: &mut HeaderMap) {
    NOT_ON_MANAGED_KEYS.remove_from(headers);
}

/// Headers by which a caller chooses the form of the answer's body.
const FORMS_OF_ANSWERS: [&str; 2] = ["accept", ACCEPT_OF_BEDROCK];

/// The forms of answers that are read for their usage, or that leave the choice to the provider.
const READABLE_FORMS: [&str; 6] = [
    "*/*",
    "application/*",
    "application/json",
    "application/x-ndjson",
    "application/vnd.amazon.eventstream",
    "text/event-stream",
];

/// Removes the choice of a form that cannot be read for its usage, for a call on a managed provider key.
pub(super) fn ask_for_a_readable_answer(headers: &mut HeaderMap) {
    for name in FORMS_OF_ANSWERS {
        let is_readable = |value: &HeaderValue| {
            value.to_str().is_ok_and(|forms| {
                forms.split(',').all(|form| {
                    let media_type = form.split(';').next().unwrap_or_default().trim();
                    READABLE_FORMS.iter().any(|readable| media_type.eq_ignore_ascii_case(readable))
                })
            })
        };
        if !headers.get_all(name).iter().all(is_readable) {
            headers.remove(name);
        }
    }
}

/// The prefix of headers by which a call chooses features of Amazon Bedrock: guardrails, latency, service tiers.
const FEATURES_OF_BEDROCK: &str = "x-amzn-bedrock-";

/// The only one that chooses nothing but the form of the answer's body.
const ACCEPT_OF_BEDROCK: &str = "x-amzn-bedrock-accept";

/// The prefix of headers that belong to a signature of AWS.
const OF_A_SIGNATURE: &str = "x-amz-";

/// The header that switches beta features on in Anthropic's own interface. At Bedrock the body has them, where it is read.
const BETAS_OF_ANTHROPIC: &str = "anthropic-beta";

/// The same for a call to Amazon Bedrock. Fails with a header that chooses another price.
pub(super) fn fit_managed_key_of_bedrock(headers: &mut HeaderMap) -> Result<(), HeaderName> {
    let chooses = |name: &&HeaderName| {
        name.as_str().starts_with(FEATURES_OF_BEDROCK) && name.as_str() != ACCEPT_OF_BEDROCK
    };
    if let Some(name) = headers.keys().find(chooses) {
        return Err(name.clone());
    }
    remove_where(headers, |name| name.starts_with(OF_A_SIGNATURE) || name == BETAS_OF_ANTHROPIC);
    Ok(())
}

/// Headers with a digest of the body.
static DIGESTS: Names<4> = Names::new(["content-md5", "digest", "content-digest", "repr-digest"]);

/// Adapts the headers to an altered body of `length` bytes.
pub(super) fn fit_altered_body(headers: &mut HeaderMap, length: usize) {
    without_digests(headers);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Removes the digests of a body that is altered.
pub(super) fn without_digests(headers: &mut HeaderMap) {
    DIGESTS.remove_from(headers);
}

/// Removes all keys of callers. A provider that the model chooses may be another one than the key's.
pub(super) fn without_own_keys(headers: &mut HeaderMap) {
    KEY_HEADERS.remove_from(headers);
    OTHER_SECRETS.remove_from(headers);
}

/// The version of Anthropic's interface, which it requires and which clients of other formats do not send.
const ANTHROPIC_VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// Prefixes of headers by which a client speaks to one provider.
const OF_A_FORMAT: [&str; 3] = ["anthropic-", "openai-", "x-goog-"];

/// Fits the headers to a body that was converted into the format of another provider, and asks for a response that can
/// be converted. Keys stay.
pub(super) fn fit_converted_body(headers: &mut HeaderMap) {
    let is_of_a_format = |name: &str| OF_A_FORMAT.iter().any(|prefix| name.starts_with(prefix));
    remove_where(headers, |name| is_of_a_format(name) && KEY_HEADERS.place(name).is_none());
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Fits the headers to a JSON body of `length` bytes that was read whole.
pub(super) fn fit_whole_body(headers: &mut HeaderMap, length: usize) {
    headers.remove(CONTENT_ENCODING);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Adds what Anthropic requires of a call, unless the caller sent it.
pub(super) fn fit_anthropic(headers: &mut HeaderMap) {
    let (name, version) = ANTHROPIC_VERSION;
    headers.entry(name).or_insert(version);
}

/// Whether the body is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let media_type = text(headers, &CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("text/event-stream")
}

/// Whether the body is an uncompressed event stream.
pub(super) fn is_plain_event_stream(headers: &HeaderMap) -> bool {
    is_event_stream(headers) && is_uncompressed(headers)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The headers back to the caller, without those that only this service may set. [`confine`] follows.
pub(super) fn to_caller(mut headers: HeaderMap) -> HeaderMap {
    let found = Found::among(&headers);
    if found.of_one_hop & LENGTH != 0 {
        fit_length(&mut headers);
    }
    strip_hop_by_hop(&mut headers, found.of_one_hop);
    if found.ours {
        strip_ours(&mut headers);
    }
    if found.replayed {
        headers.remove(IDEMPOTENCY_REPLAYED);
    }
    if found.to_a_proxy {
        remove_where(&mut headers, speaks_to_a_proxy);
    }
    headers
}

/// Leaves at most one `Content-Length`, and none beside a `Transfer-Encoding`, which overrides it (RFC 9112, section 6.3). The
/// HTTP library refuses lengths that differ, except in responses without a body.
fn fit_length(headers: &mut HeaderMap) {
    let length = if headers.contains_key(TRANSFER_ENCODING) { None } else { announced_length(headers) };
    match length {
        Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
        None => headers.remove(CONTENT_LENGTH),
    };
}

/// The length that all values of `Content-Length` agree on.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    let values = headers.get_all(CONTENT_LENGTH).iter();
    let mut lengths = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(length);
    let first = lengths.next()??;
    lengths.all(|length| length == Some(first)).then_some(first)
}

/// A length in decimal digits, without a sign.
fn length(digits: &[u8]) -> Option<u64> {
    let digits = digits.trim_ascii();
    let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?;
    text.parse().ok()
}

/// Confines a response to the call that it answers, whatever its provider says: browsers run nothing of it and keep
/// nothing of it for this origin, and no cache shares it. The documents list what is changed (endpoints.md).
pub(super) fn confine(headers: &mut HeaderMap) {
    remove_where(headers, |name| is_about_the_origin(name) || speaks_to_a_proxy(name));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let private = private_caching(headers);
    headers.insert(CACHE_CONTROL, private);
}

/// Whether a header commands a proxy in front of the gateway. Streams through nginx need `X-Accel-Buffering`.
fn speaks_to_a_proxy(name: &str) -> bool {
    matches!(name, "x-sendfile" | "x-lighttpd-send-file" | "x-reproxy-url")
        || (name.starts_with("x-accel-") && name != "x-accel-buffering")
}

/// Whether a header speaks to a browser or a cache about the whole origin, which belongs to this service.
fn is_about_the_origin(name: &str) -> bool {
    matches!(
        name,
        "set-cookie"
            | "set-cookie2"
            | "service-worker-allowed"
            | "clear-site-data"
            | "strict-transport-security"
            | "public-key-pins"
            | "expect-ct"
            | "refresh"
            | "alt-svc"
            | "nel"
            | "report-to"
            | "reporting-endpoints"
            | "origin-agent-cluster"
            | "origin-trial"
            | "accept-ch"
            | "critical-ch"
            | "speculation-rules"
            | "no-vary-search"
            | "use-as-dictionary"
            | "secure-session-registration"
            | "sec-session-registration"
            | "set-login"
            | "public-key-pins-report-only"
            | "surrogate-control"
            | "edge-control"
    ) || name.ends_with("cdn-cache-control")
}

/// The provider's `Cache-Control`, with `private` in place of what lets caches share the response.
fn private_caching(headers: &HeaderMap) -> HeaderValue {
    let mut values = headers.get_all(CACHE_CONTROL).iter();
    match (values.next().map(HeaderValue::as_bytes), values.next()) {
        (None, _) => return HeaderValue::from_static("private"),
        (Some(b"no-cache"), None) => return HeaderValue::from_static("private, no-cache"),
        (Some(b"no-store"), None) => return HeaderValue::from_static("private, no-store"),
        (Some(_), _) => {}
    }
    let mut text = "private".to_owned();
    for value in headers.get_all(CACHE_CONTROL) {
        // A value that cannot be read could say anything.
        let Ok(value) = value.to_str() else { return HeaderValue::from_static("private, no-store") };
        for directive in value.split(',').map(str::trim) {
            let name = directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
            // The fields in a quoted list are directives to this reader, and harmless ones.
            if !matches!(name.as_str(), "" | "public" | "private" | "s-maxage") {
                text.extend([", ", directive]);
            }
        }
    }
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("private, no-store"))
}

/// The headers that tell a browser's own calls, in the order in which a refusal names one.
static OF_BROWSERS: Names<6> =
    Names::new(["service-worker", "sec-fetch-mode", "sec-purpose", "purpose", "x-moz", "sec-fetch-dest"]);

/// Whether a browser makes the call on its own: to navigate, to fetch ahead, or to load a script, an image or a worker. Only
/// a program's own requests (`fetch`) are forwarded.
pub(super) fn is_of_a_browser_itself(headers: &HeaderMap) -> Option<&'static str> {
    let signs = headers.iter().filter_map(|(name, value)| {
        let place = OF_BROWSERS.place(name.as_str())?;
        let value = value.as_bytes();
        let is_sign = match OF_BROWSERS.at(place) {
            "service-worker" => true,
            "sec-fetch-mode" => value.eq_ignore_ascii_case(b"navigate"),
            "sec-fetch-dest" => !value.eq_ignore_ascii_case(b"empty"),
            // What is fetched ahead may be shown by the navigation that follows.
            _ => value.trim_ascii().get(..8).is_some_and(|begin| begin.eq_ignore_ascii_case(b"prefetch")),
        };
        is_sign.then_some(place)
    });
    signs.min().map(|place| OF_BROWSERS.at(place))
}

/// Whether the request is a delivery of a webhook of this service, directly or through other services.
pub(super) fn is_of_a_webhook(headers: &HeaderMap) -> bool {
    let (name, own) = LOOP_HEADER;
    // Each service that passes a request on adds its id, which may have parameters.
    let ids =
        headers.get_all(name).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    ids.map(|id| id.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii())
        .any(|id| id.eq_ignore_ascii_case(own.as_bytes()))
}

fn strip_ours(headers: &mut HeaderMap) {
    remove_where(headers, |name| name.starts_with(OURS));
}

fn remove_where(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    // Collecting nothing allocates nothing, the usual case.
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name.as_str())).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}

/// Removes hop-by-hop headers: those that `Connection` names, and then those that were `found` of [`OF_ONE_HOP`].
fn strip_hop_by_hop(headers: &mut HeaderMap, found: u32) {
    // Most name nothing that is there, and then nothing is allocated.
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| headers.contains_key(*name))
        .filter_map(|name| name.parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    OF_ONE_HOP.remove(headers, found & HOP_BY_HOP);
}

#[cfg(test)]
mod tests;
