//! The hosted pages and the API are apart: neither listener serves what the other does.

use farthing_tests::client::{Request, Response};
use farthing_tests::instance::{Instance, program};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::tenant::Tenant;

use super::browsers::{assert_confined, hostile};
use farthing_tests::checkout_page::Checkout;

/// Assets of the pages.
const ASSETS: [&str; 7] = [
    "/docs",
    "/docs/",
    "/docs/openapi.json",
    "/docs/start.js",
    "/docs/swagger-ui.css",
    "/embed/assets/checkout.css",
    "/embed/assets/checkout.js",
];

/// Flags of a gateway whose pages have a host of their own.
const UNALTERED: [&str; 4] = [
    "--allow-address=127.0.0.0/8",
    "--forward-response-headers=unaltered",
    "--pages-listen=127.0.0.1:0",
    "--pages-url=http://pay.example:8443",
];

#[test]
fn the_pages_are_not_served_where_providers_answers_are() {
    run(async {
        let checkout = Checkout::new("topup").await;
        let (api, pages) = (checkout.merchant.gateway(), checkout.merchant.hosted_pages());
        for path in ASSETS.into_iter().chain([checkout.path.as_str()]) {
            let served = Request::new("GET", path).send(pages).await.unwrap();
            assert_eq!(served.status, 200, "{path}");
            for (spelled, to) in [
                (path.to_owned(), api),
                (format!("/{path}"), api),
                (format!("/v1{path}"), api),
                (format!("/v1/..{path}"), api),
                (path.replacen('/', "/%2e/", 1), api),
                (format!("http://{pages}{path}"), api),
                (format!("/v1{path}"), pages),
            ] {
                for method in ["GET", "POST"] {
                    let request = Request::new(method, spelled.as_str());
                    let answer =
                        request.header("X-Forwarded-Host", pages.to_string()).send(to).await.unwrap();
                    answer.refused(404, "route_not_found");
                    assert_eq!(answer.head.all("content-security-policy"), ["sandbox"], "{spelled}");
                    assert_eq!(answer.head.all("x-content-type-options"), ["nosniff"], "{spelled}");
                }
            }
        }
        assert_eq!(checkout.shown().await["completed_at"], serde_json::Value::Null);
    });
}

#[test]
fn nothing_but_the_pages_is_served_at_their_address() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = hostile(&merchant);
        let key = &merchant.secret_key;
        let by_link = format!("{}&key={key}", forward("GET", &endpoint.url).target);
        for path in [
            "/",
            "/v1/openapi.json",
            "/v1/wallet",
            "/v1/checkout_sessions",
            "/commands",
            "/forward",
            "/embed/",
            "/embed/assets/",
            by_link.as_str(),
            &by_link.replacen("/v1/", "/docs/../v1/", 1),
            &by_link.replacen("/v1/", "/", 1),
        ] {
            for method in ["GET", "POST"] {
                let request = Request::new(method, path).bearer(key);
                request.send(merchant.hosted_pages()).await.unwrap().refused(404, "route_not_found");
            }
        }
        assert!(endpoint.calls().is_empty());
    });
}

async fn call(merchant: &Merchant, gateway: &SideGateway, request: Request) -> Response {
    request.bearer(&merchant.secret_key).send(gateway.address).await.unwrap()
}

fn plain(merchant: &Merchant) -> Endpoint {
    merchant.instance.provider.endpoint(|_| whole(200, &[("Cache-Control", "public")], b"text"))
}

#[test]
fn a_providers_headers_pass_unaltered_only_beside_pages_on_a_host_of_their_own() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = hostile(&merchant);
        let gateway = SideGateway::start(merchant.instance, &UNALTERED).await;
        for replayed in [false, true] {
            let request = forward("POST", &endpoint.url).header("Idempotency-Key", "a-page");
            let response = call(&merchant, &gateway, request).await;
            assert_eq!(response.head.all("idempotency-replayed").len(), usize::from(replayed));
            for (name, value) in [
                ("content-security-policy", "default-src *; sandbox allow-scripts allow-same-origin"),
                ("cache-control", "public, max-age=600, s-maxage=600"),
                ("service-worker-allowed", "/"),
                ("strict-transport-security", "max-age=31536000; includeSubDomains"),
                ("alt-svc", "h3=\"evil.example:443\"; ma=2592000"),
            ] {
                assert_eq!(response.head.all(name), [value], "{name}");
            }
            assert_eq!(response.head.all("set-cookie").len(), 2);
            assert_eq!(response.head.all("x-content-type-options"), [""; 0]);
            for name in ["x-sendfile", "x-accel-redirect", "x-accel-expires", "x-service-stale"] {
                assert_eq!(response.head.all(name), [""; 0], "{name}");
            }
        }
        let untouched = call(&merchant, &gateway, forward("GET", &plain(&merchant).url)).await;
        assert_eq!(untouched.head.all("cache-control"), ["public"]);

        // Errors of our own stay confined, and so does what a browser takes for a page's host.
        let refused = call(&merchant, &gateway, Request::new("GET", "/v1/forward")).await;
        refused.refused(400, "forward_url_missing");
        assert_eq!(refused.head.all("content-security-policy"), ["sandbox"]);
        let forwarded = |host: &str| forward("GET", &endpoint.url).header("X-Forwarded-Host", host);
        for host in ["pay.example", "PAY.example:80", "api.example, pay.example:8443"] {
            assert_confined(&call(&merchant, &gateway, forwarded(host)).await);
        }
        let mut absolute = forward("GET", &endpoint.url);
        absolute.target = format!("http://pay.example{}", absolute.target);
        assert_confined(&call(&merchant, &gateway, absolute).await);
        for host in ["api.example", "pay.example.org", "x.pay.example"] {
            let response = call(&merchant, &gateway, forwarded(host)).await;
            assert_eq!(response.head.all("service-worker-allowed"), ["/"], "{host}");
        }

        // A browser's own requests are refused all the same.
        let calls = endpoint.calls().len();
        for (name, value) in [("Service-Worker", "script"), ("Sec-Fetch-Mode", "navigate")] {
            let request = forward("GET", &endpoint.url).header(name, value);
            call(&merchant, &gateway, request).await.refused(400, "validation_error");
        }
        assert_eq!(endpoint.calls().len(), calls);
    });
}

/// Starts a gateway with these flags on a database, asserts that it ends, and returns what it says.
async fn refused(database_url: &str, flags: &[&str]) -> String {
    let mut gateway = tokio::process::Command::new(program());
    gateway.args(["gateway", "--database-url", database_url]).args(flags);
    gateway.stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = gateway.output().await.unwrap();
    assert!(!output.status.success(), "{flags:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_gateway_whose_pages_are_not_apart_forwards_no_headers_unaltered() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = &instance.ready().database_url;
        let unaltered = "--forward-response-headers=unaltered";
        let (listen, pages) = ("--listen=127.0.0.1:0", "--pages-listen=127.0.0.1:0");
        for flags in [
            &[unaltered, listen][..],
            &[unaltered, listen, pages],
            &[unaltered, listen, "--pages-url=http://pay.example"],
            &[unaltered, listen, pages, "--pages-url=http://127.0.0.1:81"],
            &[unaltered, "--listen=[::1]:0", pages, "--pages-url=https://[::1]"],
        ] {
            let said = refused(database_url, flags).await;
            assert!(said.contains("an address and a host of their own"), "{flags:?}: {said}");
        }
        let said = refused(database_url, &["--forward-response-headers=some", listen]).await;
        assert!(said.contains("unaltered"), "{said}");
    });
}

#[test]
fn the_url_of_the_pages_is_guessed_on_a_developers_machine_alone() {
    run(async {
        let instance = Instance::shared().await;
        let live = Tenant::on(instance, "live_without_pages_url", "live").await;
        for (database_url, flags) in [
            (&live.database_url, &["--listen=127.0.0.1:0"][..]),
            (&instance.ready().database_url, &["--listen=127.0.0.1:0", "--pages-listen=0.0.0.0:0"]),
        ] {
            let said = refused(database_url, flags).await;
            assert!(said.contains("--pages-url"), "{flags:?}: {said}");
        }
        for url in ["pay.example", "https://pay.example/pages", "ftp://pay.example", "https://a@pay.example"]
        {
            let flags = ["--listen=127.0.0.1:0", "--pages-url", url];
            assert!(refused(&live.database_url, &flags).await.contains("HOST"), "{url}");
        }
        let port_in_use = instance.hosted_pages(0);
        let said =
            refused(&live.database_url, &["--listen=127.0.0.1:0", &format!("--pages-listen={port_in_use}")])
                .await;
        assert!(said.contains(&format!("cannot listen on {port_in_use}")), "{said}");
    });
}
