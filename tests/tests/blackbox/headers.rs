//! Headers that are forwarded in both directions: all but the credential, hop-by-hop headers, and Farthing's own.

use farthing_tests::merchant::{Merchant, encoded, forward};
use farthing_tests::provider::{Step, head, json};
use farthing_tests::run;
use serde_json::json;

#[test]
fn the_provider_receives_all_headers_meant_for_it_and_no_others() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let request = forward("POST", &endpoint.url)
            .header("X-Service-Metadata", r#"{"user":"7"}"#)
            .header("x-service-anything", "ours")
            .header("Connection", "X-Hop, keep-alive")
            .header("X-Hop", "one hop")
            .header("Keep-Alive", "timeout=5")
            .header("TE", "trailers")
            .header("Trailer", "Expires")
            .header("Upgrade", "h2c")
            .header("Proxy-Authorization", "Basic eDp5")
            .header("Proxy-Connection", "keep-alive")
            .header("User-Agent", "a client/1.0")
            .header("Accept", "application/json, text/event-stream;q=0.5")
            .header("Accept-Encoding", "gzip, br")
            .header("Cookie", "a=b; c=d")
            .header("X-Provider-API-Key", "theirs")
            .header("X-Twice", "one")
            .header("X-Twice", "two")
            .header("X-Empty", "")
            .header("X-Latin", "caf\u{e9}")
            .header("OpenAI-Beta", "assistants=v2")
            .header("Idempotency-Note", "x")
            .header("If-None-Match", "\"abc\"")
            .json(&json!({"a": 1}));
        let response = merchant.send(&merchant.secret_key, request).await;
        response.expect(200);
        let call = endpoint.only_call();
        let mut seen: Vec<(String, &str)> = call
            .head
            .headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()))
            .collect();
        seen.sort_unstable();
        let authority = merchant.instance.provider.authority();
        let expected = [
            ("accept", "application/json, text/event-stream;q=0.5"),
            ("accept-encoding", "gzip, br"),
            ("content-length", "7"),
            ("content-type", "application/json"),
            ("cookie", "a=b; c=d"),
            ("host", authority.as_str()),
            ("idempotency-note", "x"),
            ("if-none-match", "\"abc\""),
            ("openai-beta", "assistants=v2"),
            ("user-agent", "a client/1.0"),
            ("x-empty", ""),
            ("x-latin", "caf\u{e9}"),
            ("x-provider-api-key", "theirs"),
            ("x-twice", "one"),
            ("x-twice", "two"),
        ];
        let expected: Vec<(String, &str)> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        assert_eq!(seen, expected);
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["metadata"], json!({"user": "7"}));
    });
}

#[test]
fn the_providers_headers_are_returned_without_hop_by_hop_headers() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| {
            let headers = [
                ("Content-Type", "application/json; charset=utf-8"),
                ("Content-Length", "2"),
                ("X-Request-Id", "provider-1"),
                ("x-service-request-id", "forged"),
                ("Set-Cookie", "a=1"),
                ("Set-Cookie", "b=2"),
                ("Connection", "X-Hop"),
                ("X-Hop", "one hop"),
                ("Proxy-Authenticate", "Basic"),
                ("Retry-After", "3"),
                ("X-Latin", "caf\u{e9}"),
            ];
            vec![head(200, &headers), Step::Bytes(b"{}".to_vec())]
        });
        let response = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
        response.expect(200);
        assert_eq!(response.head.header("content-type"), Some("application/json; charset=utf-8"));
        assert_eq!(response.head.header("x-request-id"), Some("provider-1"));
        assert_eq!(response.head.all("set-cookie"), [""; 0], "a cookie would be one of the gateway");
        assert_eq!(response.head.header("retry-after"), Some("3"));
        assert_eq!(response.head.header("x-latin"), Some("caf\u{e9}"));
        assert_eq!(response.head.header("x-hop"), None);
        assert_eq!(response.head.header("proxy-authenticate"), None);
        let ids = response.head.all("x-service-request-id");
        assert!(ids.len() == 1 && ids[0].starts_with("req_"), "{ids:?}");
    });
}

#[test]
fn metadata_is_read_from_header_or_query_and_invalid_metadata_is_refused() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let by_query = forward("GET", &format!("{}?a=1", endpoint.url));
        let target = format!("{}&metadata=%7B%22team%22%3A%22a+b%20%C3%A9%22%7D", by_query.target);
        let response =
            merchant.send(&merchant.secret_key, farthing_tests::client::Request { target, ..by_query }).await;
        let shown = merchant.shown(&response.request_id(), "completed").await;
        assert_eq!(shown["metadata"], json!({"team": "a b é"}));
        assert!(endpoint.only_call().target().ends_with("?a=1"));

        let many: serde_json::Map<_, _> = (0..101).map(|n| (format!("k{n}"), json!("v"))).collect();
        for bad in [
            "not json".to_owned(),
            "[]".to_owned(),
            "null".to_owned(),
            "1".to_owned(),
            r#"{"a":1}"#.to_owned(),
            r#"{"a":null}"#.to_owned(),
            r#"{"a":{}}"#.to_owned(),
            r#"{"a-b":"x"}"#.to_owned(),
            r#"{"":"x"}"#.to_owned(),
            r#"{"a":""}"#.to_owned(),
            r#"{"a":"1","b":"2","a":"3"}"#.to_owned(),
            "{\"a\":\"\\u0000\"}".to_owned(),
            json!({"a": "x".repeat(256)}).to_string(),
            json!({"k".repeat(256): "x"}).to_string(),
            serde_json::Value::Object(many).to_string(),
        ] {
            let request = forward("GET", &endpoint.url).header("x-service-metadata", bad.clone());
            let error = merchant.send(&merchant.secret_key, request).await.refused(400, "metadata_invalid");
            assert!(
                error["issues"].as_array().is_some_and(|issues| !issues.is_empty()),
                "{bad:.40}: {error}"
            );
        }
        // One of the values would be lost.
        let pair = |name: &str, value: &str| json!({name: value}).to_string();
        let by_header = |first: &str, second: &str| {
            let request = forward("GET", &endpoint.url).header("x-service-metadata", first);
            request.header("x-service-metadata", second)
        };
        let by_query = |first: &str, second: &str| {
            let mut request = forward("GET", &endpoint.url);
            for text in [first, second] {
                request.target.extend(["&metadata=", &encoded(text)]);
            }
            request
        };
        let (a, again, b) = (pair("a", "1"), pair("a", "2"), pair("b", "3"));
        for request in [by_header(&a, &again), by_query(&a, &again)] {
            let error = merchant.send(&merchant.secret_key, request).await.refused(400, "metadata_invalid");
            let repeated = json!([{"path": ["metadata", "a"], "message": "must not be repeated"}]);
            assert_eq!(error["issues"], repeated);
        }
        assert_eq!(endpoint.calls().len(), 1);
        for request in [by_header(&a, &b), by_query(&a, &b)] {
            let response = merchant.send(&merchant.secret_key, request).await;
            let shown = merchant.shown(&response.request_id(), "completed").await;
            assert_eq!(shown["metadata"], json!({"a": "1", "b": "3"}));
        }
    });
}
