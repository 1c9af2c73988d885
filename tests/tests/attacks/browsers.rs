//! Responses of providers to browsers: nothing of them runs or stays on the gateway's origin.

use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, whole};
use farthing_tests::run;

use super::endpoints::Endpoints;

/// What a provider may say about an origin, and must not.
const ABOUT_THE_ORIGIN: [(&str, &str); 28] = [
    ("Set-Cookie", "session=evil; Path=/"),
    ("Set-Cookie", "another=one; Path=/"),
    ("Service-Worker-Allowed", "/"),
    ("Clear-Site-Data", "\"*\""),
    ("Strict-Transport-Security", "max-age=31536000; includeSubDomains"),
    ("Public-Key-Pins", "max-age=1"),
    ("Expect-CT", "max-age=1"),
    ("Refresh", "0; url=https://evil.example/"),
    ("Alt-Svc", "h3=\"evil.example:443\"; ma=2592000"),
    ("NEL", "{\"report_to\":\"e\",\"max_age\":31536000}"),
    ("Report-To", "{\"group\":\"e\"}"),
    ("Reporting-Endpoints", "e=\"https://evil.example\""),
    ("Origin-Trial", "x"),
    ("Accept-CH", "Sec-CH-UA-Model"),
    ("Critical-CH", "Sec-CH-UA-Model"),
    ("Speculation-Rules", "\"/rules.json\""),
    ("No-Vary-Search", "params"),
    ("Use-As-Dictionary", "match=\"/*\""),
    ("Secure-Session-Registration", "(ES256);path=\"/\""),
    ("Set-Login", "logged-in"),
    ("Edge-Control", "cache-maxage=600"),
    ("X-Sendfile", "/etc/passwd"),
    ("X-Accel-Expires", "600"),
    ("X-Accel-Redirect", "/internal"),
    ("Surrogate-Control", "max-age=600"),
    ("CDN-Cache-Control", "public, max-age=600"),
    ("Idempotency-Replayed", "true"),
    ("X-Service-Stale", "true"),
];

/// What a provider says about browsers and caches, and is altered.
const ABOUT_BROWSERS: [(&str, &str); 2] = [
    ("Content-Security-Policy", "default-src *; sandbox allow-scripts allow-same-origin"),
    ("Cache-Control", "public, max-age=600, s-maxage=600"),
];

/// Headers of requests that a browser makes on its own.
const OF_A_BROWSER: [(&str, &str); 16] = [
    ("Service-Worker", "script"),
    ("Service-Worker", "anything"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-Mode", "Navigate"),
    ("Sec-Fetch-Dest", "document"),
    ("Sec-Fetch-Dest", "iframe"),
    ("Sec-Fetch-Dest", "script"),
    ("Sec-Fetch-Dest", "serviceworker"),
    ("Sec-Fetch-Dest", "worker"),
    ("Sec-Fetch-Dest", "style"),
    ("Sec-Fetch-Dest", "image"),
    ("Sec-Fetch-Dest", ""),
    ("Sec-Purpose", "prefetch"),
    ("Sec-Purpose", "Prefetch;prerender"),
    ("Purpose", "prefetch"),
    ("X-Moz", "prefetch"),
];

pub(super) fn hostile(merchant: &Merchant) -> Endpoint {
    merchant.instance.provider.endpoint(|_| {
        let mut headers =
            vec![("Content-Type", "text/html"), ("X-Kept", "as it came"), ("X-Accel-Buffering", "no")];
        headers.extend(ABOUT_BROWSERS);
        headers.extend(ABOUT_THE_ORIGIN);
        whole(200, &headers, b"<script>alert(document.domain)</script>")
    })
}

pub(super) fn assert_confined(response: &Response) {
    for (name, _) in ABOUT_THE_ORIGIN {
        assert_eq!(response.head.all(name), [""; 0], "{name}");
    }
    assert_only_our_rules(response);
}

fn assert_only_our_rules(response: &Response) {
    assert_eq!(response.head.all("content-security-policy"), ["sandbox"]);
    assert_eq!(response.head.all("x-content-type-options"), ["nosniff"]);
    let caching = response.head.all("cache-control");
    assert!(caching.len() == 1 && caching[0].starts_with("private"), "{caching:?}");
    assert!(!caching[0].contains("public") && !caching[0].contains("s-maxage"), "{caching:?}");
}

#[test]
fn nothing_of_a_provider_reaches_the_gateways_origin() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = hostile(&merchant);
        for (method, status) in [("GET", 200), ("HEAD", 200), ("POST", 200)] {
            let response = merchant.send(&merchant.secret_key, forward(method, &endpoint.url)).await;
            assert_eq!(response.status, status);
            assert_confined(&response);
            assert_eq!(response.head.all("x-kept"), ["as it came"]);
            assert_eq!(response.head.all("x-accel-buffering"), ["no"], "streams through nginx need it");
            assert_eq!(response.head.all("cache-control"), ["private, max-age=600"]);
        }
        // A stored response, and the errors of the endpoint itself.
        for replayed in [false, true] {
            let call = forward("POST", &endpoint.url).header("Idempotency-Key", "a-page");
            let response = merchant.send(&merchant.secret_key, call).await;
            assert_eq!(response.status, 200);
            assert_only_our_rules(&response);
            assert_eq!(response.head.all("set-cookie"), [""; 0]);
            assert_eq!(response.head.header("idempotency-replayed").is_some(), replayed);
        }
        let refused = merchant.send(&merchant.secret_key, Request::new("GET", "/v1/forward")).await;
        refused.refused(400, "forward_url_missing");
        assert_only_our_rules(&refused);
    });
}

/// A program's own request in a browser.
fn by_fetch(request: Request) -> Request {
    request
        .header("Sec-Fetch-Mode", "cors")
        .header("Sec-Fetch-Dest", "empty")
        .header("Sec-Fetch-Site", "cross-site")
}

#[test]
fn a_browsers_own_requests_are_not_forwarded() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = hostile(&merchant);
        let key = &merchant.secret_key;
        for (name, value) in OF_A_BROWSER {
            let by_link = format!("{}&key={key}", forward("GET", &endpoint.url).target);
            for call in [Request::new("GET", by_link.as_str()), Request::new("POST", by_link.as_str())] {
                let call = call.header("Sec-Fetch-Dest", "empty").header(name, value);
                let response = call.send(merchant.gateway()).await.unwrap();
                let refused = response.refused(400, "validation_error");
                assert_eq!(refused["issues"][0]["path"], serde_json::json!([name.to_lowercase()]), "{value}");
                assert_only_our_rules(&response);
            }
        }
        assert!(endpoint.calls().is_empty());
        let fetch = by_fetch(forward("GET", &endpoint.url));
        assert_eq!(merchant.send(key, fetch).await.status, 200);
    });
}

#[test]
fn every_endpoint_confines_its_responses_and_refuses_a_browsers_own_requests() {
    run(async {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(ABOUT_BROWSERS);
        headers.extend(ABOUT_THE_ORIGIN);
        let endpoints = Endpoints::start(&headers).await;
        let merchant = Merchant::funded("10").await;
        let mut sent = 0;
        for call in endpoints.calls() {
            let target = call.target();
            let asked = call.request.clone().bearer(&merchant.secret_key);
            let fetch = by_fetch(asked.clone());
            let response = endpoints.send(&fetch).await;
            assert_eq!(response.status, 200, "{target}: {}", response.text());
            assert_confined(&response);
            let once = fetch.header("Idempotency-Key", target);
            for replayed in [false, true] {
                let response = endpoints.send(&once).await;
                assert_eq!(response.status, 200, "{target}: {}", response.text());
                assert_only_our_rules(&response);
                assert_eq!(response.head.all("set-cookie"), [""; 0], "{target}");
                let is_replayed = response.head.header("idempotency-replayed").is_some();
                assert_eq!(is_replayed, replayed, "{target}");
            }
            sent += 2;
            assert_eq!(endpoints.received(), sent, "{target}");
            // Errors of its own.
            let refused = endpoints.send(&call.request).await;
            refused.refused(401, "auth_header_missing");
            assert_only_our_rules(&refused);
            for (name, value) in OF_A_BROWSER {
                let by_browser = asked.clone().header("Sec-Fetch-Dest", "empty").header(name, value);
                let response = endpoints.send(&by_browser).await;
                let refused = response.refused(400, "validation_error");
                let path = serde_json::json!([name.to_lowercase()]);
                assert_eq!(refused["issues"][0]["path"], path, "{target}: {value}");
                assert_only_our_rules(&response);
            }
            // A link opens none but forward, which refuses it by its headers.
            if !target.starts_with("/v1/forward") {
                let link = Request::new("GET", format!("{target}?key={}", merchant.secret_key));
                let response = endpoints.send(&link).await;
                response.refused(405, "method_not_allowed");
                assert_only_our_rules(&response);
            }
            assert_eq!(endpoints.received(), sent, "{target}");
        }
    });
}
