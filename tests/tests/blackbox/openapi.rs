//! The API document and the reference page are correct, and the program serves them itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use farthing_tests::client::{Request, Response};
use farthing_tests::document::Document;
use farthing_tests::instance::Instance;
use farthing_tests::run;

async fn page_at(target: &str) -> Response {
    Request::new("GET", target).send(Instance::shared().await.hosted_pages(0)).await.unwrap()
}

#[test]
fn the_document_is_served_without_a_key_and_names_both_vocabularies() {
    run(async {
        let document = Document::served().await;
        assert_eq!(document.0["openapi"], "3.1.0");
        let paths: BTreeSet<_> = document.operations().into_iter().map(|operation| operation.path).collect();
        for path in [
            "/customers",
            "/connections",
            "/meters",
            "/products",
            "/spend_keys",
            "/manage/spend_keys",
            "/forward",
        ] {
            assert!(paths.contains(path), "{path}");
        }
        let schemes = document.0["components"]["securitySchemes"].as_object().unwrap();
        assert!(schemes.contains_key("secretKey") && schemes.contains_key("forwardToken"));
    });
}

#[test]
fn every_operation_of_the_document_is_routed() {
    run(async {
        let gateway = Instance::shared().await.gateway(0);
        for operation in Document::served().await.operations() {
            let target = operation.target(|_| "nobody".to_owned());
            let answer = Request::new(&operation.method, target).send(gateway).await.unwrap();
            let open = operation.id == "get_openapi";
            assert_eq!(
                answer.status,
                if open { 200 } else { 401 },
                "{}: {}",
                operation.name(),
                answer.text()
            );
        }
    });
}

/// The lines of code below `folder` that add a route without its API description.
fn plain_routes(folder: &Path, files: &mut usize) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(plain_routes(&path, files));
            continue;
        }
        *files += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let plain = code.filter(|line| [".route(", ".route_service("].iter().any(|made| line.contains(made)));
        found.extend(plain.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    found
}

#[test]
fn every_route_has_an_api_description() {
    let mut files = 0;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let found = plain_routes(&root.join("gateway/api/src/rest"), &mut files);
    assert!(found.is_empty(), "use routes! and also_at:\n{}", found.join("\n"));
    assert!(files > 40, "{files} files");
    // The search itself works: the pages outside the API are plain routes.
    assert!(!plain_routes(&root.join("gateway/api/src/docs"), &mut files).is_empty());
}

#[test]
fn every_operation_has_a_unique_id_and_documents_its_success_and_errors() {
    run(async {
        let document = Document::served().await;
        let mut names = BTreeMap::new();
        for operation in document.operations() {
            let name = operation.name();
            if let Some(other) = names.insert(operation.id.clone(), name.clone()) {
                panic!("{name} and {other} are both called {}", operation.id);
            }
            let statuses: Vec<_> = operation.responses.as_object().unwrap().keys().cloned().collect();
            assert!(statuses.iter().any(|status| status.starts_with('2') || status == "403"), "{name}");
            if operation.takes_secret_key {
                let codes = operation.codes(401);
                for code in ["auth_header_missing", "auth_header_invalid", "secret_key_invalid"] {
                    assert!(codes.iter().any(|documented| documented == code), "{name} {code}");
                }
                assert_eq!(
                    (operation.codes(414), operation.codes(431)),
                    (vec!["uri_too_long".to_owned()], vec!["headers_too_large".to_owned()])
                );
                for status in [429, 500, 503] {
                    assert!(!operation.codes(status).is_empty(), "{name} {status}");
                }
            }
        }
    });
}

#[test]
fn the_reference_page_loads_nothing_from_elsewhere() {
    run(async {
        for (page, folder) in [("/docs", "/"), ("/docs/", "/docs/")] {
            let answer = page_at(page).await;
            assert_eq!(
                (answer.status, answer.head.header("content-type")),
                (200, Some("text/html; charset=utf-8"))
            );
            let policy = answer.head.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
            assert!(
                !policy.contains("http") && !policy.contains('*') && !policy.contains("unsafe-eval"),
                "{policy}"
            );
            let html = answer.text();
            let links: Vec<_> = ["src=\"", "href=\"", "data-document=\""]
                .iter()
                .flat_map(|name| {
                    html.split(name).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned())
                })
                .filter(|link| link != "data:,")
                .collect();
            assert_eq!(links.len(), 5, "{links:?}");
            for link in links {
                assert!(!link.contains("//") && !link.starts_with('/'), "{link} points outside");
                let target = match link.strip_prefix("../") {
                    Some(rest) => format!("/{rest}"),
                    None => format!("{folder}{link}"),
                };
                let asset = page_at(&target).await;
                assert_eq!(asset.status, 200, "{target}");
                assert!(asset.body.len() > 100, "{target}");
                asset.request_id();
            }
        }
        page_at("/docs/nothing.js").await.refused(404, "route_not_found");
        let posted =
            Request::new("POST", "/docs").send(Instance::shared().await.hosted_pages(0)).await.unwrap();
        posted.refused(405, "method_not_allowed");
        assert_eq!(posted.head.header("allow"), Some("GET,HEAD"));
    });
}
