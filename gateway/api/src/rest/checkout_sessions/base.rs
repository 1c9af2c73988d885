//! The base URL of this instance, as the caller addressed it. Hosted pages have the same base.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, Scheme};

use crate::app::App;
use crate::error::ApiError;

/// Scheme and host, with a slash at the end: `https://billing.example/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base(pub(super) String);

impl FromRequestParts<Arc<App>> for Base {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let own = parts
            .uri
            .authority()
            .map(Authority::as_str)
            .or_else(|| first_value(&parts.headers, HOST.as_str()));
        let forwarded = |name| app.trust_forwarded.then(|| first_value(&parts.headers, name)).flatten();
        let host = forwarded("x-forwarded-host").or(own);
        let scheme = forwarded("x-forwarded-proto").unwrap_or("http");
        Self::of(scheme, host.unwrap_or_default())
            .ok_or_else(|| ApiError::issue([""; 0], "the Host header is missing or invalid"))
    }
}

impl Base {
    fn of(scheme: &str, host: &str) -> Option<Self> {
        let scheme = [Scheme::HTTP, Scheme::HTTPS].into_iter().find(|known| known.as_str() == scheme)?;
        let authority: Authority = host.parse().ok().filter(|_| !host.contains('@'))?;
        Some(Self(format!("{scheme}://{authority}/")))
    }
}

/// The first value of a header that several proxies may have extended.
fn first_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()?.split(',').next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_a_scheme_and_a_host() {
        assert_eq!(Base::of("https", "pay.example:8443").unwrap().0, "https://pay.example:8443/");
        assert_eq!(Base::of("http", "[::1]:80").unwrap().0, "http://[::1]:80/");
        for (scheme, host) in [("ftp", "a"), ("http", ""), ("http", "a/b"), ("http", "u@a"), ("HTTPS", "a")] {
            assert_eq!(Base::of(scheme, host), None, "{scheme} {host}");
        }
    }
}
