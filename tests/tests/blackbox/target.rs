//! The target of a call: `u` in all its forms, and the rest of the query unchanged.

use farthing_tests::client::Request;
use farthing_tests::merchant::{Merchant, encoded};
use farthing_tests::provider::{Endpoint, json};
use farthing_tests::run;
use serde_json::json;

async fn reached(merchant: &Merchant, endpoint: &Endpoint, method: &str, target: String) -> String {
    let request = Request::new(method, target.clone()).bearer(&merchant.secret_key);
    let response = request.send(merchant.gateway()).await.unwrap();
    assert_eq!(response.status, 200, "{target}: {}", response.text());
    let call = endpoint.calls().pop().unwrap();
    assert_eq!(call.method(), method);
    call.target().to_owned()
}

#[test]
fn u_may_be_encoded_or_raw_and_the_query_keeps_its_order_and_encoding() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let (raw, path) = (&endpoint.url, &endpoint.path);
        for (query, expected) in [
            (format!("u={}", encoded(raw)), path.clone()),
            (format!("u={raw}"), path.clone()),
            (format!("u={raw}?a=1&b=2"), format!("{path}?a=1&b=2")),
            (format!("u={}", encoded(&format!("{raw}?a=1&b=2"))), format!("{path}?a=1&b=2")),
            (format!("z=9&u={raw}&b=2&a=1"), format!("{path}?z=9&b=2&a=1")),
            (format!("u={}&b=2&a=1", encoded(&format!("{raw}?own=1"))), format!("{path}?own=1&b=2&a=1")),
            (format!("u={raw}&a=%2F+x%20%C3%A9&a=&a"), format!("{path}?a=%2F+x%20%C3%A9&a=&a")),
            (format!("u={raw}?q=%7B%22a%22%7D"), format!("{path}?q=%7B%22a%22%7D")),
            (format!("u={}", encoded(&format!("{raw}?q=%252F"))), format!("{path}?q=%252F")),
            (format!("u={}", encoded(&format!("{raw}?a=1#fragment"))), format!("{path}?a=1")),
            (format!("u={raw}?alt%3Dsse%26x%3D1"), format!("{path}?alt=sse&x=1")),
            (format!("z=9&u={raw}?alt%3dsse&b=2"), format!("{path}?alt=sse&z=9&b=2")),
            (format!("u={raw}?q%3D%252F"), format!("{path}?q=%2F")),
            (format!("u={raw}?a=b%3D%26c%3D1"), format!("{path}?a=b%3D%26c%3D1")),
            (format!("%75={raw}"), path.clone()),
            (format!("u={raw}&U=1&uu=2&x%75=3"), format!("{path}?U=1&uu=2&x%75=3")),
            (format!("u={raw}&metadata=%7B%22a%22%3A%22b%22%7D&c=d"), format!("{path}?c=d")),
        ] {
            assert_eq!(
                reached(&merchant, &endpoint, "GET", format!("/v1/forward?{query}")).await,
                expected,
                "{query}"
            );
            assert_eq!(
                reached(&merchant, &endpoint, "GET", format!("/v1/forward/?{query}")).await,
                expected,
                "{query}"
            );
        }
    });
}

#[test]
fn a_url_in_the_path_is_called_and_charged_as_u_is_and_what_a_client_appends_is_a_part_of_it() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let (customer, meter) = (merchant.customer("1").await, merchant.call_meter("0.01").await);
        let credential = merchant.billing(&customer, &meter);
        let endpoint = merchant
            .instance
            .provider
            .endpoint_ending("/v1beta/models/m:do", |_| json(200, &json!({"usage": {"tokens": 7}})));
        let (raw, path) = (&endpoint.url, &endpoint.path);
        for (rest, expected) in [
            (raw.clone(), path.clone()),
            (
                format!("{raw}?alt=sse&a=%2F+x&key={}", encoded(&credential)),
                format!("{path}?alt=sse&a=%2F+x"),
            ),
            (format!("{raw}?metadata=%7B%22a%22%3A%22b%22%7D"), path.clone()),
            (raw.replace("http://", "http:/"), path.clone()),
        ] {
            let request = Request::new("POST", format!("/v1/forward/{rest}")).json(&json!({"x": 1}));
            let response = merchant.send(&credential, request).await;
            assert_eq!(response.status, 200, "{rest}: {}", response.text());
            let call = endpoint.calls().pop().unwrap();
            assert_eq!((call.target(), &call.body[..]), (expected.as_str(), &br#"{"x":1}"#[..]), "{rest}");
            let metered = merchant.charged(&response).await;
            assert_eq!(metered["usage"]["tokens"]["input"], 7, "{metered}");
            assert_eq!(metered["total_wallet_cost"], "0.0100000000", "{metered}");
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["endpoint"], format!("POST {}", expected.replace(path.as_str(), raw)), "{rest}");
        }
        // An idempotency key knows both spellings for the same call.
        let calls = endpoint.calls().len();
        for target in [format!("/v1/forward?u={raw}"), format!("/v1/forward/{raw}")] {
            let request = Request::new("POST", target).json(&json!({"x": 1})).header("Idempotency-Key", "k");
            merchant.send(&credential, request).await.expect(200);
        }
        assert_eq!(endpoint.calls().len(), calls + 1);
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_url_in_the_path_that_could_be_read_in_two_ways_is_refused() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let (authority, raw) = (merchant.instance.provider.authority(), &endpoint.url);
        let (path, key) = (&endpoint.path, &merchant.secret_key);
        let events = merchant.events().await.len();
        for rest in [
            format!("{authority}{path}"),
            encoded(raw),
            format!("/{raw}"),
            format!("http:///{authority}{path}"),
            format!("http:{authority}{path}"),
            format!("ftp://{authority}{path}"),
            format!("http://user@{authority}{path}"),
            format!("http://example.com%40{authority}{path}"),
            format!("http://{authority}%2F..{path}"),
            format!("http://{authority}%23{path}"),
            format!("http://{authority}%3F{path}"),
            format!("http://{authority}%5C{path}"),
            format!("http://127.1:{}{path}", authority.split(':').nth(1).unwrap()),
            // As a client appends its path that puts it before a query.
            format!("v1beta/models/m:generateContent?u={raw}"),
            // The provider has one URL.
            format!("{raw}?u={raw}"),
            format!("{raw}?u={}", encoded("https://example.com")),
            // A credential of ours that would reach the provider.
            format!("{raw}/{key}"),
            format!("{raw}?x={key}"),
        ] {
            let request = Request::new("GET", format!("/v1/forward/{rest}"));
            merchant.send(key, request).await.refused(400, "forward_url_invalid");
        }
        for rest in ["https://example.com", "nothing"] {
            let bare = Request::new("GET", format!("/v1/forward/{rest}"));
            bare.send(merchant.gateway()).await.unwrap().refused(401, "auth_header_missing");
        }
        assert!(endpoint.calls().is_empty());
        assert_eq!(merchant.events().await.len(), events, "nothing was opened");
        // What stands behind the host is the provider's to read, as in `u`.
        let odd = format!("{path}/a%2Fb/../c%3Fd%23e@f");
        let below = merchant.instance.provider.endpoint_at(&odd, |_| json(200, &json!({})));
        let target = format!("/v1/forward/http://{authority}{odd}");
        assert_eq!(reached(&merchant, &below, "GET", target).await, odd);
    });
}

#[test]
fn the_endpoint_of_the_request_is_the_method_and_the_full_forwarded_url() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let url = format!("{}?a=%2F", endpoint.url);
        let response = merchant.fetch(&merchant.secret_key, &url).await;
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["endpoint"], format!("GET {url}"));
        assert_eq!(shown["provider"], "other");
    });
}

#[test]
fn a_url_whose_query_alone_is_encoded_is_masked_and_refused_as_one_that_is_encoded_throughout() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let (raw, key) = (&endpoint.url, &merchant.secret_key);
        let mut shown = Vec::new();
        for target in [
            format!("/v1/forward?u={raw}?alt%3Dsse%26key%3Dse-cret"),
            format!("/v1/forward?u={}", encoded(&format!("{raw}?alt=sse&key=se-cret"))),
        ] {
            let response = merchant.send(key, Request::new("GET", target)).await;
            response.expect(200);
            assert_eq!(
                endpoint.calls().pop().unwrap().target(),
                format!("{}?alt=sse&key=se-cret", endpoint.path)
            );
            let request = merchant.shown(&response.request_id(), "completed").await;
            let of_url = (request["endpoint"].clone(), request["provider_key_type"].clone());
            assert!(!of_url.0.as_str().unwrap().contains("se-cret"), "{request}");
            assert_eq!(of_url.1, "unmanaged", "{request}");
            shown.push(of_url);
        }
        assert_eq!(shown[0], shown[1]);
        let calls = endpoint.calls().len();
        let events = merchant.events().await.len();
        for query in [
            "?a%3Db%20c".to_owned(),
            "?a%3D%0D%0AX:y".to_owned(),
            "?a%3D%C3%A9".to_owned(),
            "?a%3D%FF".to_owned(),
            format!("?x%3D{key}"),
            format!("?x%3D1%26key%3D{key}"),
        ] {
            let target = format!("/v1/forward?u={raw}{query}");
            merchant.send(key, Request::new("GET", target)).await.refused(400, "forward_url_invalid");
        }
        let user = raw.replace("http://", "http://user%40");
        let user = Request::new("GET", format!("/v1/forward?u={user}?a%3Db"));
        merchant.send(key, user).await.refused(400, "forward_url_invalid");
        assert_eq!(endpoint.calls().len(), calls);
        assert_eq!(merchant.events().await.len(), events, "nothing was opened");
    });
}

#[test]
fn every_method_passes_with_its_body() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            for before in ["/v1/forward?u=", "/v1/forward/?u=", "/v1/forward/"] {
                let target = format!("{before}{}", endpoint.url);
                reached(&merchant, &endpoint, method, target.clone()).await;
                let request = Request::new(method, target).json(&json!({"of": method}));
                merchant.send(&merchant.secret_key, request).await.expect(200);
                let call = endpoint.calls().pop().unwrap();
                assert_eq!(call.method(), method);
                assert_eq!(call.body, json!({"of": method}).to_string().into_bytes());
            }
        }
        reached(&merchant, &endpoint, "HEAD", format!("/v1/forward/{}", endpoint.url)).await;
    });
}

#[test]
fn an_ambiguous_target_is_refused() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let authority = merchant.instance.provider.authority();
        let events = merchant.events().await.len();
        for url in [
            format!("http://user@{authority}/"),
            format!("http://user:password@{authority}/"),
            format!("http://{authority}\\@example.com/"),
            format!("http:\\\\{authority}/"),
            format!("http://example.com\\@{authority}/"),
            format!("ftp://{authority}/"),
            "file:///etc/passwd".to_owned(),
            "gopher://127.0.0.1/".to_owned(),
            format!("//{authority}/"),
            "/relative".to_owned(),
            "relative".to_owned(),
            format!("http://{authority}/\u{0}"),
            format!("http://{authority}/\r\nX-Injected: 1"),
            format!("http://{authority}/\tx"),
            format!("http://{authority}/a b"),
            "http://".to_owned(),
            "http:///path".to_owned(),
            "http://127.0.0.1:0/".to_owned(),
            "http://127.0.0.1:99999/".to_owned(),
            format!("http://{authority}/{}", "x".repeat(40_000)),
        ] {
            let target = format!("/v1/forward?u={}", encoded(&url));
            let response = merchant.send(&merchant.secret_key, Request::new("GET", target)).await;
            assert!(matches!(response.status, 400 | 414 | 431), "{url:.60}: {}", response.text());
            if response.status == 400 {
                response.refused(400, "forward_url_invalid");
            }
        }
        let twice = Request::new("GET", format!("/v1/forward?u={0}&u={0}", endpoint.url));
        merchant.send(&merchant.secret_key, twice).await.refused(400, "forward_url_invalid");
        for target in ["/v1/forward", "/v1/forward?", "/v1/forward?u=", "/v1/forward?a=b"] {
            merchant
                .send(&merchant.secret_key, Request::new("GET", target))
                .await
                .refused(400, "forward_url_missing");
        }
        assert!(endpoint.calls().is_empty());
        assert_eq!(merchant.events().await.len(), events, "nothing was opened");
    });
}

#[test]
fn non_ascii_bytes_in_a_raw_target_are_not_a_server_error() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        for query in [
            format!("u={}?a=\u{e9}", endpoint.url),
            format!("u={}&\u{ff}=1", endpoint.url),
            format!("u={}&a=\"<>`{{}}|^\"", endpoint.url),
            format!("u={}&a=%zz&b=%", endpoint.url),
            "u=%ff%fe".to_owned(),
        ] {
            let request = Request::new("GET", format!("/v1/forward?{query}"));
            let response = merchant.send(&merchant.secret_key, request).await;
            assert!(response.status < 500, "{query}: {} {}", response.status, response.text());
        }
    });
}
