//! The settings of traces, most of them the variables of OpenTelemetry. What is wrong is an error, not a default.

use std::path::PathBuf;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use opentelemetry_sdk::trace::Sampler;
use percent_encoding::percent_decode_str;

/// The path of traces at a collector.
const PATH: &str = "/v1/traces";

/// Where spans go, and of which calls they are made.
#[derive(Clone)]
pub struct TraceSettings {
    /// The URL that takes spans.
    pub endpoint: Uri,
    /// Headers of every request there, such as a login.
    pub headers: HeaderMap,
    /// PEM file of the only authorities that are trusted; `None` for those of the machine.
    pub authorities: Option<PathBuf>,
    /// Which calls are traced.
    pub sampling: Sampling,
    /// The most traces that begin in a second.
    pub per_second: u32,
}

/// What is wrong with a setting. It shows nothing of a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(&'static str);

/// The URL of traces of a collector with this base URL.
pub fn base_endpoint(text: &str) -> Result<Uri, Invalid> {
    let base = traces_endpoint(text)?;
    if base.query().is_some() {
        return Err(Invalid("the URL must have no query"));
    }
    let mut parts = base.into_parts();
    let path = parts.path_and_query.as_ref().map_or("", PathAndQuery::path).trim_end_matches('/');
    let path = format!("{path}{PATH}").parse().map_err(|_| Invalid("the URL has no valid path"))?;
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|_| Invalid("it is no URL"))
}

/// A URL that takes spans.
pub fn traces_endpoint(text: &str) -> Result<Uri, Invalid> {
    let uri: Uri = text.trim().parse().map_err(|_| Invalid("it is no URL"))?;
    let authority = uri.authority().ok_or(Invalid("the URL must begin with http:// or https://"))?;
    if !matches!(uri.scheme(), Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) {
        return Err(Invalid("the URL must begin with http:// or https://"));
    }
    if authority.as_str().contains('@') {
        return Err(Invalid("the URL must hold no login: give it in the headers"));
    }
    Ok(uri)
}

/// The headers in a text such as `authorization=Bearer%20…,x-tenant=a`: values are percent-encoded.
pub fn headers(text: &str) -> Result<HeaderMap, Invalid> {
    const FORM: Invalid = Invalid("headers must be NAME=VALUE, with commas between them");
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(FORM)?;
        let name: HeaderName =
            name.trim().parse().map_err(|_| Invalid("the name of a header is not valid"))?;
        let value = percent_decode_str(value.trim()).collect::<Vec<u8>>();
        let mut value =
            HeaderValue::from_bytes(&value).map_err(|_| Invalid("the value of a header is not valid"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Which calls are traced.
#[derive(Debug, Clone)]
pub struct Sampling {
    /// Chooses among calls whose callers say nothing, or are not followed.
    pub(super) sampler: Sampler,
    /// Whether a caller decides that sends a `traceparent`.
    pub(super) follows_caller: bool,
}

impl Sampling {
    /// The sampler of this name with this argument, as `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` have them.
    pub fn named(name: Option<&str>, argument: Option<&str>) -> Result<Self, Invalid> {
        let name = name.unwrap_or("parentbased_always_on");
        let (follows_caller, own) = match name.strip_prefix("parentbased_") {
            Some(own) => (true, own),
            None => (false, name),
        };
        let sampler = match own {
            "always_on" => Sampler::AlwaysOn,
            "always_off" => Sampler::AlwaysOff,
            "traceidratio" => Sampler::TraceIdRatioBased(ratio(argument)?),
            _ => {
                return Err(Invalid(
                    "the sampler must be always_on, always_off or traceidratio, or parentbased_ and one of them",
                ));
            }
        };
        Ok(Self { sampler, follows_caller })
    }
}

fn ratio(argument: Option<&str>) -> Result<f64, Invalid> {
    let Some(argument) = argument else { return Ok(1.0) };
    let ratio = argument.trim().parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or(Invalid("the share of traces must be a number between 0 and 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_to_a_base_url_alone() {
        for (base, url) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            (" https://otel.example/a/ ", "https://otel.example/a/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(base_endpoint(base).unwrap().to_string(), url);
        }
        let whole = "https://otel.example/in?tenant=a";
        assert_eq!(traces_endpoint(whole).unwrap().to_string(), whole);
        assert!(base_endpoint(whole).is_err());
    }

    #[test]
    fn other_urls_are_refused_without_being_shown() {
        for url in
            ["", "localhost:4318", "/v1/traces", "grpc://localhost:4317", "http://", "http://a:secret@b"]
        {
            for refused in [base_endpoint(url).unwrap_err(), traces_endpoint(url).unwrap_err()] {
                assert!(!refused.to_string().contains("secret"), "{refused}");
            }
        }
    }

    #[test]
    fn headers_are_decoded_and_never_shown() {
        let read = headers("authorization=Bearer%20a%3Db, x-tenant = one ,").unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(
            (read["authorization"].as_bytes(), read["x-tenant"].as_bytes()),
            (&b"Bearer a=b"[..], &b"one"[..])
        );
        assert!(!format!("{read:?}").contains("Bearer"));
        assert!(headers("").unwrap().is_empty());
        for text in ["secret", "sec ret=1", "a=secret%0A", "=secret"] {
            let refused = headers(text).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn an_unknown_sampler_or_share_is_refused() {
        for (name, argument) in [
            (None, None),
            (Some("always_off"), Some("unused")),
            (Some("traceidratio"), Some("0.01")),
            (Some("parentbased_traceidratio"), None),
        ] {
            assert!(Sampling::named(name, argument).is_ok(), "{name:?} {argument:?}");
        }
        for (name, argument) in [
            ("jaeger_remote", None),
            ("parentbased_", None),
            ("", None),
            ("traceidratio", Some("2")),
            ("traceidratio", Some("-0.1")),
            ("traceidratio", Some("NaN")),
            ("parentbased_traceidratio", Some("a tenth")),
        ] {
            assert!(Sampling::named(Some(name), argument).is_err(), "{name} {argument:?}");
        }
    }
}
