//! Conventions of all endpoints, tested on every operation of the served API document, so new endpoints are covered.

use std::collections::{BTreeMap, BTreeSet};

use farthing_tests::client::{Body, Request};
use farthing_tests::document::{Document, Operation};
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use serde_json::{Value, json};

/// One byte more than a body may have.
const TOO_LARGE: usize = 1024 * 1024 + 1;

fn request_of(operation: &Operation) -> Request {
    Request::new(&operation.method, operation.target(|_| "nobody".to_owned()))
}

#[test]
fn every_operation_refuses_calls_without_a_valid_key() {
    run(async {
        let merchant = Merchant::new().await;
        let gateway = merchant.gateway();
        for operation in Document::served().await.standard() {
            let wrong = [
                ("auth_header_missing", request_of(&operation)),
                ("auth_header_invalid", request_of(&operation).header("Authorization", "Basic eDp5")),
                ("auth_header_invalid", request_of(&operation).header("Authorization", "Bearer")),
                ("secret_key_invalid", request_of(&operation).bearer("aks_test_nobody")),
                ("secret_key_invalid", request_of(&operation).bearer(&format!("{}x", merchant.secret_key))),
            ];
            for (code, request) in wrong {
                let answer = request.send(gateway).await.unwrap();
                assert_eq!(answer.status, 401, "{}: {}", operation.name(), answer.text());
                assert_eq!(operation.refuses(&answer, "without a valid key"), code, "{}", operation.name());
                assert_eq!(answer.head.header("www-authenticate"), Some("Bearer"), "{}", operation.name());
                assert_eq!(answer.head.header("x-ratelimit-limit"), None);
            }
        }
    });
}

#[test]
fn a_wrong_method_is_answered_with_the_allowed_ones() {
    run(async {
        let merchant = Merchant::new().await;
        let mut taken: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for operation in Document::served().await.operations() {
            if !operation.path.starts_with("/forward") {
                let methods = taken.entry(operation.target(|_| "nobody".to_owned())).or_default();
                methods.extend((operation.method == "GET").then(|| "HEAD".to_owned()));
                methods.insert(operation.method);
            }
        }
        for (target, methods) in taken {
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
                if methods.contains(method) {
                    continue;
                }
                let answer = merchant.rest(Request::new(method, &target)).await;
                answer.refused(405, "method_not_allowed");
                let allow =
                    answer.head.header("allow").unwrap_or_else(|| panic!("{method} {target}: no Allow"));
                let allowed: BTreeSet<_> = allow.split(',').map(|name| name.trim().to_owned()).collect();
                assert_eq!(allowed, methods, "{method} {target}");
            }
        }
    });
}

#[test]
fn head_is_a_get_without_the_body() {
    run(async {
        let merchant = Merchant::new().await;
        for operation in Document::served().await.standard() {
            if operation.method != "GET" || operation.query.iter().any(|name| name == "start") {
                continue;
            }
            let target = operation.target(|_| "nobody".to_owned());
            let (get, head) =
                (merchant.get(&target).await, merchant.rest(Request::new("HEAD", &target)).await);
            assert_eq!((head.status, head.body.len()), (get.status, 0), "{target}");
            head.request_id();
        }
    });
}

#[test]
fn every_operation_refuses_an_unreadable_body_and_changes_nothing() {
    run(async {
        let merchant = Merchant::new().await;
        let before = merchant.events().await.len();
        let json = |request: Request, body: &[u8]| {
            request.header("Content-Type", "application/json").body(Body::Whole(body.to_vec()))
        };
        for operation in Document::served().await.standard() {
            let Some(_) = operation.body else {
                // A POST that is always refused reads no body.
                if operation.method == "POST" && operation.id != "create_secret_key" {
                    let large = merchant.rest(json(request_of(&operation), &vec![b' '; TOO_LARGE])).await;
                    assert_eq!(operation.refuses(&large, "a large body"), "body_too_large");
                }
                continue;
            };
            for (status, code, what, request) in [
                (400, "validation_error", "no JSON", json(request_of(&operation), b"{")),
                (400, "validation_error", "no UTF-8", json(request_of(&operation), b"{\"a\":\"\xff\"}")),
                (400, "validation_error", "a list", json(request_of(&operation), b"[]")),
                (400, "validation_error", "null", json(request_of(&operation), b"null")),
                (
                    415,
                    "content_type_unsupported",
                    "no type",
                    request_of(&operation).body(Body::Whole(b"{}".to_vec())),
                ),
                (
                    415,
                    "content_type_unsupported",
                    "another type",
                    request_of(&operation)
                        .header("Content-Type", "text/plain")
                        .body(Body::Whole(b"{}".to_vec())),
                ),
                (413, "body_too_large", "a large body", json(request_of(&operation), &vec![b' '; TOO_LARGE])),
                (
                    413,
                    "body_too_large",
                    "a large body in chunks",
                    request_of(&operation)
                        .header("Content-Type", "application/json")
                        .body(Body::Chunks(vec![vec![b' '; TOO_LARGE / 2]; 3])),
                ),
            ] {
                let answer = merchant.rest(request).await;
                assert_eq!(answer.status, status, "{} {what}: {}", operation.name(), answer.text());
                assert_eq!(operation.refuses(&answer, what), code, "{} {what}", operation.name());
                let issues = &answer.json()["error"]["issues"];
                assert_eq!(issues.is_array(), status == 400, "{} {what}: {issues}", operation.name());
                assert!(answer.head.header("x-ratelimit-remaining").is_some(), "{}", operation.name());
            }
        }
        assert_eq!(merchant.events().await.len(), before, "something was written");
    });
}

#[test]
fn every_list_refuses_invalid_limits_and_cursors() {
    run(async {
        let merchant = Merchant::new().await;
        let made = merchant.post("/v1/webhooks", &json!({"url": "http://a.example"})).await.expect(201);
        // The parent resource of a list must exist.
        let named = |segment: &str| match segment {
            "webhooks" => made["webhook_id"].as_str().unwrap().to_owned(),
            _ => "nobody".to_owned(),
        };
        let mut lists = 0;
        for operation in Document::served().await.standard() {
            if !operation.query.iter().any(|name| name == "cursor") {
                continue;
            }
            lists += 1;
            let target = operation.target(named);
            // The parameters that say what is listed.
            let of_wallet = operation.query.iter().any(|name| name == "wallet_id");
            let is_of_period = operation.query.iter().any(|name| name == "start");
            let wallet = if of_wallet { format!("wallet_id={}&", merchant.wallet_id) } else { String::new() };
            let period =
                if is_of_period { "start=2026-01-01T00:00:00Z&end=2026-02-01T00:00:00Z&" } else { "" };
            let target = format!("{target}?{wallet}{period}");
            for bad in
                ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=1.5", "limit=1&limit=2"]
            {
                let answer = merchant.get(&format!("{target}{bad}")).await;
                let error = answer.refused(400, "validation_error");
                assert_eq!(error["issues"][0]["path"], json!(["limit"]), "{target}{bad}: {error}");
            }
            for bad in ["nobody", "req_01ARZ3NDEKTSV4RRFFQ69G5FAV", "con_01ARZ3NDEKTSV4RRFFQ69G5FAV", "%00x"]
            {
                let answer = merchant.get(&format!("{target}cursor={bad}")).await;
                let code = operation.refuses(&answer, bad);
                assert_eq!(answer.status, 400, "{target}cursor={bad}");
                assert!(["cursor_invalid", "validation_error"].contains(&code.as_str()), "{target} {code}");
                assert_eq!(answer.json()["error"]["issues"][0]["path"], json!(["cursor"]), "{target}");
            }
            let page = merchant.get(&target).await.expect(200);
            // A statement has entries between two sums.
            let items = page.get("data").or_else(|| page.get("entries"));
            assert!(items.is_some_and(Value::is_array) && page["has_more"] == false, "{target}: {page}");
        }
        assert!(lists >= 3, "{lists} lists");
    });
}

#[test]
fn an_unknown_path_has_the_error_envelope_for_every_method() {
    run(async {
        let merchant = Merchant::new().await;
        for target in ["/", "/v1", "/v1/", "/v2/customers", "/v1/nothing", "/v1/customers/"] {
            for method in ["GET", "POST", "DELETE", "OPTIONS"] {
                merchant.rest(Request::new(method, target)).await.refused(404, "route_not_found");
            }
        }
        merchant.get("/v1/customers/%ff").await.refused(404, "route_not_found");
    });
}
