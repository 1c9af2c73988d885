//! Responses of providers to browsers: nothing of them runs or stays on the gateway's origin.

use farthing_tests::client::{Request, Response};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, whole};
use farthing_tests::run;

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

pub(super) fn hostile(merchant: &Merchant) -> Endpoint {
    merchant.instance.provider.endpoint(|_| {
        let mut headers = vec![
            ("Content-Type", "text/html"),
            ("Content-Security-Policy", "default-src *; sandbox allow-scripts allow-same-origin"),
            ("Cache-Control", "public, max-age=600, s-maxage=600"),
            ("X-Kept", "as it came"),
            ("X-Accel-Buffering", "no"),
        ];
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

#[test]
fn a_browsers_own_requests_are_not_forwarded() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = hostile(&merchant);
        let key = &merchant.secret_key;
        for (name, value) in [
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
        ] {
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
        // A program's own request in a browser.
        let fetch = forward("GET", &endpoint.url)
            .header("Sec-Fetch-Mode", "cors")
            .header("Sec-Fetch-Dest", "empty")
            .header("Sec-Fetch-Site", "cross-site");
        assert_eq!(merchant.send(key, fetch).await.status, 200);
    });
}
