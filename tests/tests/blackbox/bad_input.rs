//! Bad input is refused with a 4xx and the error envelope: never a 500, never a charge, never an event.

use farthing_tests::client::{Body, Connection, Request, Response};
use farthing_tests::merchant::{Merchant, encoded, forward, token};
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn is_envelope(response: &Response, what: &str) {
    assert!(
        (400..500).contains(&response.status),
        "{what:.80}: {} {:.300}",
        response.status,
        response.text()
    );
    let error = &response.json()["error"];
    assert_eq!(error["status"], response.status, "{what:.80}: {error}");
    assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{what:.80}: {error}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what:.80}: {error}");
    assert!(response.request_id().starts_with("req_"));
    if let Some(issues) = error["issues"].as_array() {
        for issue in issues {
            assert!(issue["path"].is_array() && issue["message"].is_string(), "{what:.80}: {error}");
        }
    }
}

#[test]
fn malformed_credentials_are_refused() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer("1").await;
        let meter = merchant.call_meter("0.1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let before = merchant.events().await.len();
        let key = merchant.secret_key.clone();
        let long = "x".repeat(10 * 1024);
        let tokens = [
            "not base64 at all!".to_owned(),
            "%%%".to_owned(),
            "====".to_owned(),
            "a".to_owned(),
            base64_of(b"not json"),
            base64_of(b"{\"secret_key\":"),
            base64_of(b"\xff\xfe\0"),
            base64_of(b"\0"),
            base64_of("[".repeat(9_000).as_bytes()),
            base64_of(&[b'{'; 9_000]),
            token(&json!(null)),
            token(&json!(7)),
            token(&json!("text")),
            token(&json!([])),
            token(&json!({})),
            token(&json!({"secret_key": null})),
            token(&json!({"secret_key": 7})),
            token(&json!({"secret_key": {"a": 1}})),
            token(&json!({"secret_key": ""})),
            token(&json!({"secret_key": "unknown"})),
            token(&json!({"secret_key": long})),
            token(&json!({"secret_key": "a\0b"})),
            token(&json!({"secret_key": key, "customer_id": 7})),
            token(&json!({"secret_key": key, "customer_id": []})),
            token(&json!({"secret_key": key, "customer_id": ""})),
            token(&json!({"secret_key": key, "customer_id": "a\0b"})),
            token(&json!({"secret_key": key, "customer_id": long})),
            token(&json!({"secret_key": key, "customer_id": "con_"})),
            token(&json!({"secret_key": key, "customer_id": "nobody"})),
            token(&json!({"secret_key": key, "customer_id": "'; DROP TABLE ledger.events; --"})),
            token(&json!({"secret_key": key, "customer_id": customer.id, "connection_id": "another"})),
            token(&json!({"secret_key": key, "customer_id": customer.id, "meter_slug": 1.5})),
            token(&json!({"secret_key": key, "customer_id": customer.id, "meter_slug": "none"})),
            token(&json!({"secret_key": key, "customer_id": customer.id, "meter_slug": "\u{0}"})),
            token(&json!({"secret_key": key, "customer_id": customer.id, "meter_id": "prd_x"})),
            token(&json!({"secret_key": key, "connection_secret": long})),
            token(&json!({"secret_key": key, "connection_secret": "cons_\u{e9}\u{1F600}"})),
            token(&json!({"secret_key": key, "product_secret": false})),
            token(&json!({"secret_key": key, "disable_billing": "yes"})),
            token(&json!({"secret_key": key, "provider_key": {"a": 1}})),
            long.clone(),
            "aks_test_".to_owned(),
            format!("aks_test_{long}"),
            "aks_live_x".to_owned(),
            "spk_x".to_owned(),
            meter.secret.clone(),
            merchant.id.clone(),
        ];
        for credential in &tokens {
            let in_header = merchant.fetch(credential, &endpoint.url).await;
            is_envelope(&in_header, credential);
            let request = forward("GET", &endpoint.url);
            let target = format!("{}&key={}", request.target, encoded(credential));
            let in_query = Request { target, ..request }.send(merchant.gateway()).await.unwrap();
            is_envelope(&in_query, credential);
        }
        let two_lines = token(&json!({"secret_key": key, "provider_key": "line\nbreak"}));
        is_envelope(
            &merchant.fetch(&two_lines, &endpoint.url).await,
            "a provider key that is not a valid header value",
        );
        for header in ["Basic abc", "Bearer", "Bearer ", "", "Token x", "Bearer \u{e9}", &key] {
            let request = forward("GET", &endpoint.url).header("Authorization", header);
            is_envelope(&request.send(merchant.gateway()).await.unwrap(), header);
        }
        assert!(endpoint.calls().is_empty(), "nothing reached the provider");
        assert_eq!(merchant.events().await.len(), before, "nothing was appended");
        assert_eq!(merchant.balance(&customer).await, "1.0000000000");
    });
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn malformed_bodies_are_refused_with_the_paths_of_the_wrong_fields() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let other = Merchant::funded("1").await;
        let stranger = other.customer("0").await;
        let long = "x".repeat(10 * 1024);
        let nul = "a\0b";
        let tiers = json!([{"start": 0, "rate": "1"}]);
        let meter = |more: Value| {
            let mut fields =
                json!({"name": "m", "rate_type": "fixed", "tier_type": "requests", "tiers": tiers});
            fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            fields
        };
        let before = merchant.events().await.len();
        let bodies = [
            ("/v1/customers", json!({"reference_id": 7}), "reference_id"),
            ("/v1/customers", json!({"reference_id": ""}), "reference_id"),
            ("/v1/customers", json!({"reference_id": "con_mine"}), "reference_id"),
            ("/v1/customers", json!({"reference_id": long}), "reference_id"),
            ("/v1/customers", json!({"reference_id": nul}), "reference_id"),
            ("/v1/customers", json!({"name": ["x"]}), "name"),
            ("/v1/customers", json!({"name": "n".repeat(256)}), "name"),
            ("/v1/customers", json!({"name": nul}), "name"),
            ("/v1/customers", json!({"name": "  "}), "name"),
            ("/v1/customers", json!({"email": "nobody"}), "email"),
            ("/v1/customers", json!({"email": nul}), "email"),
            ("/v1/customers", json!({"phone": "12345"}), "phone"),
            ("/v1/customers", json!({"phone": 491_701_234_567_u64}), "phone"),
            ("/v1/customers", json!({"metadata": []}), "metadata"),
            ("/v1/customers", json!({"metadata": {"a": [1]}}), "metadata"),
            ("/v1/customers", json!({"metadata": {"a b": "x"}}), "metadata"),
            ("/v1/customers", json!({"metadata": {"a": nul}}), "metadata"),
            ("/v1/customers", json!({"metadata": {"a": ""}}), "metadata"),
            ("/v1/meters", json!({}), "tiers"),
            ("/v1/meters", meter(json!({"name": 7})), "name"),
            ("/v1/meters", meter(json!({"name": nul})), "name"),
            ("/v1/meters", meter(json!({"meter_slug": long})), "meter_slug"),
            ("/v1/meters", meter(json!({"rate_type": "free"})), "rate_type"),
            ("/v1/meters", meter(json!({"tier_type": "bytes"})), "tier_type"),
            ("/v1/meters", meter(json!({"tiers": []})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": "x"})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": 1, "rate": "1"}]})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": 0, "rate": "-1"}]})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": 0, "rate": 0.1}]})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": 0, "rate": "1e3"}]})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": 0, "rate": "NaN"}]})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": 0, "rate": "0.00000000001"}]})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": 0, "rate": "9".repeat(100)}]})), "tiers"),
            ("/v1/meters", meter(json!({"tiers": [{"start": -1, "rate": "1"}]})), "tiers"),
            (
                "/v1/meters",
                meter(json!({"tiers": [{"start": 0, "rate": "1"}, {"start": 0, "rate": "2"}]})),
                "tiers",
            ),
            (
                "/v1/meters",
                meter(json!({"tiers": [{"start": 0, "rate": "1"}, {"start": 1.5, "rate": "2"}]})),
                "tiers",
            ),
            ("/v1/meters", meter(json!({"token_basis": "input"})), "token_basis"),
            ("/v1/meters", meter(json!({"service_charge_payer": "nobody"})), "service_charge_payer"),
            (
                "/v1/meters",
                json!({"name": "x", "provider": "other", "billingBasis": "bytes", "feeStructure": {"fixedFee": 1}}),
                "billingBasis",
            ),
            (
                "/v1/meters",
                json!({"name": "x", "provider": "other", "billingBasis": "tokens", "feeStructure": {"fixedFee": "x"}}),
                "feeStructure",
            ),
            ("/v1/spend_keys", json!({}), "name"),
            ("/v1/spend_keys", json!({"name": nul}), "name"),
            (
                "/v1/spend_keys",
                json!({"name": "x", "spend_limit": {"amount": "0", "cycle": "daily"}}),
                "spend_limit",
            ),
            (
                "/v1/spend_keys",
                json!({"name": "x", "spend_limit": {"amount": "1", "cycle": "hourly"}}),
                "spend_limit",
            ),
            (
                "/v1/spend_keys",
                json!({"name": "x", "spend_limit": {"amount": 0.5, "cycle": "daily"}}),
                "spend_limit",
            ),
            (
                "/v1/spend_keys",
                json!({"name": "x", "request_limit": {"count": -1, "cycle": "daily"}}),
                "request_limit",
            ),
            ("/v1/spend_keys", json!({"name": "x", "rate_limit": {"rpm": 0}}), "rate_limit"),
            ("/v1/spend_keys", json!({"name": "x", "rate_limit": {"rpm": 1.5}}), "rate_limit"),
            ("/v1/spend_keys", json!({"name": "x", "rate_limit": 5}), "rate_limit"),
            ("/v1/spend_keys", json!({"name": "x", "expires_at": "yesterday"}), "expires_at"),
            ("/v1/spend_keys", json!({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}), "expires_at"),
            ("/v1/spend_keys", json!({"name": "x", "allowed_models": "gpt"}), "allowed_models"),
            ("/v1/spend_keys", json!({"name": "x", "allowed_models": [7]}), "allowed_models"),
            ("/v1/spend_keys", json!({"name": "x", "request_shape": "grpc"}), "request_shape"),
            ("/v1/spend_keys", json!({"name": "x", "connection_id": 7}), "connection_id"),
        ];
        for (path, body, wrong) in &bodies {
            let response = merchant.post(path, body).await;
            let what = format!("{path} {body}");
            is_envelope(&response, &what);
            let error = response.refused(400, "validation_error");
            let issues = error["issues"].as_array().unwrap_or_else(|| panic!("{what:.80}: {error}"));
            assert!(issues.iter().any(|issue| issue["path"][0] == *wrong), "{what:.80}: {error}");
        }
        for path in ["/v1/customers", "/v1/meters", "/v1/spend_keys", "/v1/products", "/v1/manage/spend_keys"]
        {
            for text in [
                "",
                "{",
                "null",
                "7",
                "[]",
                "\"x\"",
                "{\"a\":1}}",
                "\0",
                "{\"name\":\"\\ud800\"}",
                "{\"name\":\"x\",\"name\":7}",
            ] {
                let request = Request::new("POST", path)
                    .header("Content-Type", "application/json")
                    .body(Body::Whole(text.as_bytes().to_vec()));
                let response = merchant.rest(request).await;
                if !(path == "/v1/customers" && text.is_empty()) {
                    assert!(response.status < 500, "{path} {text}: {}", response.text());
                    if response.status >= 400 {
                        is_envelope(&response, text);
                    }
                }
            }
            let invalid = Request::new("POST", path).header("Content-Type", "application/json");
            is_envelope(
                &merchant.rest(invalid.body(Body::Whole(b"{\"name\":\"\xff\"}".to_vec()))).await,
                path,
            );
            let plain = Request::new("POST", path)
                .header("Content-Type", "text/plain")
                .body(Body::Whole(b"{}".to_vec()));
            merchant.rest(plain).await.refused(415, "content_type_unsupported");
            let large = Request::new("POST", path)
                .header("Content-Type", "application/json")
                .body(Body::Whole(vec![b' '; 2 * 1024 * 1024]));
            merchant.rest(large).await.refused(413, "body_too_large");
            let deep = format!("{{\"name\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
            let deep = Request::new("POST", path)
                .header("Content-Type", "application/json")
                .body(Body::Whole(deep.into_bytes()));
            is_envelope(&merchant.rest(deep).await, path);
            let members = (0..=10_000).map(|number| format!("\"{number}\":0")).collect::<Vec<_>>();
            let many = Request::new("POST", path)
                .header("Content-Type", "application/json")
                .body(Body::Whole(format!("{{\"name\":\"x\",{}}}", members.join(",")).into_bytes()));
            let refused = merchant.rest(many).await.refused(400, "validation_error");
            assert!(refused.to_string().contains("at most 10000 members"), "{refused}");
        }
        let foreign = json!({"name": "x", "connection_id": stranger.id});
        merchant.post("/v1/spend_keys", &foreign).await.refused(404, "customer_not_found");
        let empty_customers =
            merchant.events().await.iter().filter(|event| event.kind != "customer.created").count();
        let created = merchant.events().await.len() - empty_customers;
        assert!(
            merchant.events().await.len() - created <= before,
            "only customers without any field were appended"
        );
    });
}

#[test]
fn malformed_paths_and_queries_are_refused() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let other = Merchant::funded("1").await;
        let stranger = other.customer("0").await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({})));
        let foreign_call = other.fetch(&other.secret_key, &endpoint.url).await.request_id();
        let foreign_key = other.post("/v1/spend_keys", &json!({"name": "x"})).await.expect(201);
        let foreign_key = foreign_key["spend_key_id"].as_str().unwrap().to_owned();
        let long = "x".repeat(10 * 1024);
        let odd = [
            "%00",
            "a%00b",
            "%ff%fe",
            "%F0%9F%98%80",
            "..",
            "%2e%2e%2f",
            "'%20OR%201=1--",
            "con_",
            "req_%00",
            &long,
        ];
        for name in odd {
            for path in [
                "/v1/customers",
                "/v1/connections",
                "/v1/meters",
                "/v1/requests",
                "/v1/manage/spend_keys",
                "/v1/spend_keys",
            ] {
                let response = merchant.get(&format!("{path}/{name}")).await;
                is_envelope(&response, &format!("{path}/{name}"));
                assert!(matches!(response.status, 400 | 404 | 414), "{path}/{name}: {}", response.text());
            }
            is_envelope(
                &merchant.rest(Request::new("POST", format!("/v1/spend_keys/{name}/rotate"))).await,
                name,
            );
            for path in ["/v1/requests", "/v1/connections", "/v1/customers", "/v1/products"] {
                let response = merchant.get(&format!("{path}?cursor={name}")).await;
                is_envelope(&response, &format!("{path}?cursor={name}"));
            }
            // A valid reference id or slug is not found; anything else is refused.
            for parameter in ["connection_id", "customer_id", "product_id", "meter_id"] {
                let response = merchant.get(&format!("/v1/requests?{parameter}={name}")).await;
                if response.status == 200 {
                    assert_eq!(response.json()["data"], json!([]), "{parameter}={name}");
                } else {
                    is_envelope(&response, &format!("{parameter}={name}"));
                }
            }
            let response = merchant.get(&format!("/v1/requests?metadata_filters={name}")).await;
            is_envelope(&response, &format!("metadata_filters={name}"));
        }
        merchant.get(&format!("/v1/requests/{foreign_call}")).await.refused(404, "request_not_found");
        merchant.get(&format!("/v1/customers/{}", stranger.id)).await.refused(404, "customer_not_found");
        let by_reference = encoded(&stranger.reference_id);
        merchant.get(&format!("/v1/customers/{by_reference}")).await.refused(404, "customer_not_found");
        merchant.get(&format!("/v1/connections/{}", stranger.id)).await.refused(404, "connection_not_found");
        merchant
            .get(&format!("/v1/manage/spend_keys/{foreign_key}"))
            .await
            .refused(404, "spend_key_not_found");
        let rotate = Request::new("POST", format!("/v1/spend_keys/{foreign_key}/rotate"));
        merchant.rest(rotate).await.refused(404, "spend_key_not_found");
        for (path, cursor) in [("/v1/requests", &foreign_call), ("/v1/connections", &stranger.id)] {
            let response = merchant.get(&format!("{path}?cursor={cursor}")).await;
            is_envelope(&response, path);
            assert_eq!(response.status, 400, "{path}: {}", response.text());
        }
        for limit in ["0", "101", "-1", "1.5", "ten", "", "99999999999999999999", "%00", "1e1"] {
            for path in ["/v1/requests", "/v1/connections"] {
                let error =
                    merchant.get(&format!("{path}?limit={limit}")).await.refused(400, "validation_error");
                assert_eq!(error["issues"][0]["path"][0], "limit", "{error}");
            }
        }
        let filtered = merchant.get(&format!("/v1/requests?connection_id={}", stranger.id)).await.expect(200);
        assert_eq!(filtered["data"], json!([]), "another merchant's customer has no calls here");
    });
}

#[test]
fn an_unknown_cursor_is_refused_also_where_no_item_passes_the_filters() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer("0").await;
        let made = async |path: &str, body: &Value| merchant.post(path, body).await.expect(201);
        made("/v1/spend_keys", &json!({"name": "k"})).await;
        made("/v1/requests", &json!({"request_id": "reported", "tokens": 1})).await;
        let plan = made("/v1/plans", &json!({"name": "free", "period_amount": 0})).await;
        made("/v1/subscriptions", &json!({"customer_id": customer.id, "plan_id": plan["plan_id"]})).await;
        for (path, id, filters) in [
            ("/v1/requests", "request_id", ["customer_id=nobody", "meter_id=none"].as_slice()),
            ("/v1/spend_keys", "spend_key_id", ["customer_id=nobody"].as_slice()),
            (
                "/v1/subscriptions",
                "subscription_id",
                ["customer_id=nobody", "connection_id=nobody"].as_slice(),
            ),
            ("/v1/ledger/events", "id", ["customer_id=nobody", "request_id=none"].as_slice()),
        ] {
            let listed = merchant.get(path).await.expect(200);
            let own = listed["data"][0][id].as_str().expect("an item");
            for filter in filters {
                for cursor in ["nonsense", "0", "req_01ARZ3NDEKTSV4RRFFQ69G5FAV", "con_"] {
                    let target = format!("{path}?{filter}&cursor={cursor}");
                    let error = merchant.get(&target).await.refused(400, "cursor_invalid");
                    assert_eq!(error["issues"][0]["path"], json!(["cursor"]), "{target}: {error}");
                }
                for target in [format!("{path}?{filter}"), format!("{path}?{filter}&cursor={own}")] {
                    let page = merchant.get(&target).await.expect(200);
                    assert_eq!((&page["data"], &page["has_more"]), (&json!([]), &json!(false)), "{target}");
                }
            }
        }
    });
}

#[test]
fn unknown_paths_and_methods_have_their_own_codes() {
    run(async {
        let merchant = Merchant::new().await;
        for path in
            ["/v1/nothing", "/", "/v1", "/v1/", "/v2/customers", "/v1/customers/a/b/c", "/v1//requests"]
        {
            merchant.get(path).await.refused(404, "route_not_found");
        }
        for (method, path) in [
            ("PUT", "/v1/customers"),
            ("DELETE", "/v1/requests"),
            ("POST", "/v1/requests/req_x"),
            ("PUT", "/v1/secret_keys"),
            ("PATCH", "/v1/connections"),
        ] {
            let response = merchant.rest(Request::new(method, path)).await;
            response.refused(405, "method_not_allowed");
            assert!(response.head.header("allow").is_some_and(|allow| !allow.is_empty()), "{method} {path}");
        }
        merchant.post("/v1/secret_keys", &json!({})).await.refused(403, "secret_key_issuance_paused");
    });
}

#[test]
fn bytes_that_are_not_http_close_the_connection_and_nothing_else() {
    run(async {
        let merchant = Merchant::new().await;
        for bytes in [
            &b"\0\0\0\0\r\n\r\n"[..],
            b"GET /v1/requests HTTP/9.9\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
            b"POST /v1/customers HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /v1/forward?u=http://127.0.0.1/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let connection = Connection::open(merchant.gateway()).await.unwrap();
            let mut write = connection.write;
            // The gateway may close the connection before everything is written.
            let _ = write.write_all(bytes).await;
            let _ = write.shutdown().await;
            drop(connection.read);
        }
        let mut raw = tokio::net::TcpStream::connect(merchant.gateway()).await.unwrap();
        raw.write_all(b"NONSENSE\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        raw.read_to_end(&mut answer).await.unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 5"), "{}", String::from_utf8_lossy(&answer));
        merchant.get("/v1/requests").await.expect(200);
    });
}
