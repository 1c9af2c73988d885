//! Connections and heads of strangers, and of providers: what they may cost, and what is not HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use farthing_tests::client::{Body, Connection, Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Gate, Step, head, json as answer_json, whole};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::gateways::between_gateways;

const KIB: usize = 1024;

/// The calls that a gateway has in flight.
const CALLS: usize = 16;

/// No key is looked up until the transaction ends.
const HOLD_LOOK_UPS: &str = "BEGIN; LOCK TABLE ledger.directory IN ACCESS EXCLUSIVE MODE";

/// Longer than any answer takes, so that one that never comes is a failure.
const A_MINUTE: Duration = Duration::from_mins(1);

async fn answer_to(gateway: SocketAddr, bytes: &[u8]) -> Response {
    let mut connection = Connection::open(gateway).await.unwrap();
    // The gateway may answer before everything is written.
    let _ = connection.write.write_all(bytes).await;
    connection.response("GET").await.unwrap()
}

#[test]
fn a_head_beyond_64_kib_is_refused_before_it_ends() {
    run(async {
        let merchant = Merchant::new().await;
        let with_header =
            |kib: usize| Request::new("GET", "/v1/requests").header("X-Long", "x".repeat(kib * KIB));
        merchant.rest(with_header(63)).await.expect(200);
        merchant.rest(with_header(64)).await.refused(431, "headers_too_large");
        for unfinished in [
            format!("GET /v1/requests HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(64 * KIB)),
            format!("GET /v1/requests HTTP/1.1\r\nHost: a\r\n{}", "X: a\r\n".repeat(11 * KIB)),
            format!("GET /v1/requests?{}", "x".repeat(64 * KIB)),
            format!("GET /v1/requests HTTP/1.1\r\n{}:", "x".repeat(64 * KIB)),
        ] {
            let answer = answer_to(merchant.gateway(), unfinished.as_bytes()).await;
            answer.refused(431, "headers_too_large");
            assert_eq!(answer.head.header("connection"), Some("close"));
        }
        for (length, status) in [(32 * KIB, 200), (32 * KIB + 1, 414)] {
            let path = "/v1/requests?metadata.x=";
            let target = format!("{path}{}", "x".repeat(length - path.len()));
            let answer = merchant.rest(Request::new("GET", target)).await;
            if status == 414 {
                answer.refused(414, "uri_too_long");
            } else {
                assert_ne!(answer.status, 414, "{}", answer.text());
            }
        }
    });
}

#[test]
fn one_address_does_not_take_all_connections() {
    run(async {
        let merchant = Merchant::new().await;
        let gateway = SideGateway::start(merchant.instance, &["--max-connections-per-address=2"]).await;
        let request = Request::new("GET", "/v1/openapi.json");
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut connection = Connection::open(gateway.address).await.unwrap();
            connection.send(&request).await.unwrap();
            connection.response("GET").await.unwrap().expect(200);
            held.push(connection);
        }
        for _ in 0..3 {
            let closed = request.send(gateway.address).await;
            assert!(closed.is_err(), "a third connection was served: {closed:?}");
        }
        // Another address is served.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other: TcpStream = socket.connect(gateway.address).await.unwrap();
        other
            .write_all(b"GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        held.pop();
        eventually("a connection of the address may be replaced", async || {
            request.send(gateway.address).await.ok()
        })
        .await
        .expect(200);
        drop(held);
        let unlimited = SideGateway::start(merchant.instance, &["--max-connections-per-address=0"]).await;
        let mut held = Vec::new();
        for _ in 0..5 {
            let mut connection = Connection::open(unlimited.address).await.unwrap();
            connection.send(&request).await.unwrap();
            connection.response("GET").await.unwrap().expect(200);
            held.push(connection);
        }
    });
}

#[test]
fn strangers_whose_keys_are_looked_up_leave_calls_to_known_keys() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("1").await;
        let calls = format!("--max-calls={CALLS}");
        let gateway = SideGateway::start(instance, &["--allow-address=127.0.0.0/8", &calls]).await;
        let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let call = forward("POST", &endpoint.url).json(&json!({}));
        let own = call.clone().bearer(&merchant.secret_key);
        own.send(gateway.address).await.unwrap().expect(200);

        let log = instance.log().await;
        log.sql.batch_execute(HOLD_LOOK_UPS).await.unwrap();
        let mut strangers = JoinSet::new();
        for number in 0..2 * CALLS {
            let (call, to) = (call.clone().bearer(&format!("aks_test_stranger{number}")), gateway.address);
            strangers.spawn(async move { call.send(to).await.unwrap() });
        }
        for _ in 0..CALLS {
            strangers.join_next().await.unwrap().unwrap().refused(503, "ledger_unavailable");
        }
        for _ in 0..5 {
            own.send(gateway.address).await.unwrap().expect(200);
        }
        log.sql.batch_execute("COMMIT").await.unwrap();
        while let Some(answer) = strangers.join_next().await {
            let answer = answer.unwrap();
            assert!([401, 503].contains(&answer.status), "{}", answer.text());
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn the_body_of_an_unknown_key_is_not_read() {
    run(async {
        let merchant = Merchant::new().await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        for key in ["aks_test_junk", "spk_junk"] {
            let code = if key.starts_with("aks") { "secret_key_invalid" } else { "spend_key_invalid" };
            for request in [
                forward("POST", &endpoint.url).json(&json!({"input": "x".repeat(250 * KIB)})),
                forward("POST", &endpoint.url)
                    .header("Idempotency-Key", "k")
                    .body(Body::Whole(vec![b'x'; 200 * KIB])),
                forward("POST", &endpoint.url)
                    .header("Content-Type", "application/json")
                    .body(Body::Chunks(vec![vec![b'1'; 200 * KIB]])),
                Request::new("POST", format!("/v1/forward/{}", endpoint.url))
                    .json(&json!({"input": "x".repeat(200 * KIB)})),
                Request::new("POST", "/v1/chat/completions")
                    .json(&json!({"messages": "x".repeat(200 * KIB)})),
                Request::new("POST", "/v1/messages").json(&json!({"messages": "x".repeat(200 * KIB)})),
                Request::new("POST", format!("/v1/rewrite/openai/{}/chat/completions", endpoint.url))
                    .json(&json!({"messages": "x".repeat(200 * KIB)})),
            ] {
                let request = request.bearer(key);
                // No byte of the body is sent, then all of it at once.
                let mut connection = Connection::open(merchant.gateway()).await.unwrap();
                connection.send_head(&request).await.unwrap();
                let answer = timeout(A_MINUTE, connection.response("POST")).await;
                let answer = answer.expect("the refusal does not wait for the body").unwrap();
                answer.refused(401, code);
                assert_eq!(answer.head.header("connection"), Some("close"), "{:?}", request.headers);
                assert!(connection.response("POST").await.is_err(), "nothing follows the unread body");
                let answer = request.send(merchant.gateway()).await.unwrap();
                answer.refused(401, code);
            }
        }
        let request = Request::new("POST", "/v1/customers").json(&json!({"name": "x".repeat(200 * KIB)}));
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send_head(&request.bearer("aks_test_junk")).await.unwrap();
        let answer = timeout(A_MINUTE, connection.response("POST")).await;
        answer.expect("the refusal does not wait for the body").unwrap().refused(401, "secret_key_invalid");
        assert!(endpoint.calls().is_empty());
        // A short body that was left unread does not end the connection.
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        for _ in 0..3 {
            let request = forward("POST", &endpoint.url).json(&json!({"a": 1})).bearer("aks_test_junk");
            connection.send(&request).await.unwrap();
            connection.response("POST").await.unwrap().refused(401, "secret_key_invalid");
        }
    });
}

/// A proxy in front could take a request with two hosts for another one than the gateway does. The pages and the address
/// between gateways refuse it as the API does, before anything else is looked at.
#[test]
fn a_request_says_clearly_for_which_host_it_is() {
    run(async {
        let merchant = Merchant::new().await;
        let mut listeners = between_gateways(&merchant).await;
        listeners.extend([merchant.gateway(), merchant.hosted_pages()]);
        for (hosts, version) in [
            ("", "1.1"),
            ("Host: a\r\nHost: a\r\n", "1.1"),
            ("Host: a\r\nHost: b\r\n", "1.1"),
            ("host: a\r\nHOST: b\r\n", "1.0"),
            ("Host:\r\n", "1.1"),
            ("Host: a, b\r\n", "1.1"),
            ("Host: a b\r\n", "1.1"),
            ("Host: user@a\r\n", "1.1"),
            ("Host: a/b\r\n", "1.1"),
            ("Host: a:port\r\n", "1.1"),
            ("Host: a:99999\r\n", "1.1"),
            ("Host: http://a\r\n", "1.0"),
        ] {
            for target in ["/v1/openapi.json", "/v1/forward?u=http://a/", "http://a/v1/openapi.json", "/docs"]
            {
                let request = format!("GET {target} HTTP/{version}\r\n{hosts}\r\n");
                for listener in &listeners {
                    let answer = answer_to(*listener, request.as_bytes()).await;
                    let refused = answer.refused(400, "validation_error");
                    assert_eq!(refused["issues"][0]["path"], json!(["host"]), "{listener}: {request}");
                    assert_eq!(answer.head.header("connection"), Some("close"), "{listener}: {request}");
                }
            }
        }
        for request in [
            "GET /v1/openapi.json HTTP/1.0\r\n\r\n",
            "GET /v1/openapi.json HTTP/1.0\r\nHost: a\r\n\r\n",
            "GET /v1/openapi.json HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
            "GET http://b/v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            assert_eq!(answer_to(merchant.gateway(), request.as_bytes()).await.status, 200, "{request}");
        }
    });
}

#[test]
fn another_protocol_and_interim_responses_without_end_are_no_response() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let interim = |count: usize| vec![head(103, &[("Link", "</a>; rel=preload")]); count];
        let provider = &merchant.instance.provider;
        let few = provider.endpoint(move |_| [interim(100), whole(200, &[], b"{}")].concat());
        for _ in 0..2 {
            merchant.fetch(&merchant.secret_key, &few.url).await.expect(200);
        }
        let switching = provider.endpoint(|_| {
            let switch = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
            vec![head(101, &switch), Step::Bytes(b"another protocol".to_vec()), Step::Wait(Gate::default())]
        });
        let waits = || vec![Step::Wait(Gate::default())];
        let many = provider.endpoint(move |_| [interim(101), waits()].concat());
        let continues = provider.endpoint(move |_| {
            let bytes = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100_000);
            [vec![Step::Bytes(bytes)], waits()].concat()
        });
        // Neither the gateway nor its caller would undo the coding.
        let coded = provider.endpoint(|_| {
            let coded = head(200, &[("Content-Type", "application/json"), ("Transfer-Encoding", "gzip")]);
            vec![coded, Step::Bytes(b"{}".to_vec()), Step::Close]
        });
        for endpoint in [&switching, &many, &continues, &coded] {
            for _ in 0..2 {
                let refused = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
                refused.refused(502, "provider_unreachable");
                let id = refused.request_id();
                let failed = eventually("the call has failed", async || {
                    merchant.log.event(&format!("{id}/failed")).await
                })
                .await;
                assert_eq!(failed.body["reason"], "provider_gone");
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_refusal_reaches_a_caller_that_writes_its_whole_body_first() {
    run(async {
        let merchant = Merchant::new().await;
        let body = vec![b'x'; 8 * 1024 * KIB];
        let unknown = "aks_test_00000000000000000000000000000000";
        let forward = forward("POST", &merchant.instance.ready().provider_url).target;
        for (key, target, status, code) in [
            (unknown, "/v1/customers", 401, "secret_key_invalid"),
            (unknown, forward.as_str(), 401, "secret_key_invalid"),
            (merchant.secret_key.as_str(), "/v1/customers", 413, "body_too_large"),
            (merchant.secret_key.as_str(), "/v1/nothing", 404, "route_not_found"),
        ] {
            for gateway in 0..2 {
                let request =
                    Request::new("POST", target).bearer(key).header("Content-Type", "application/json");
                let mut connection = Connection::open(merchant.instance.gateway(gateway)).await.unwrap();
                connection.send(&request.body(Body::Whole(body.clone()))).await.unwrap();
                connection.response("POST").await.unwrap().refused(status, code);
            }
        }
    });
}
