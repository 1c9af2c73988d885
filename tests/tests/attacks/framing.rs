//! Requests and responses that are framed in two ways, or without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::merchant::{Merchant, encoded, forward};
use farthing_tests::process::resident_kib;
use farthing_tests::provider::{Step, head, json as answer_json};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

const MIB: u64 = 1024 * 1024;

/// Longer than anything that a gateway reads before it gives up.
const ENDLESS: u64 = 256 * MIB;

/// The timeout of an exchange on a connection.
const EXCHANGE: Duration = Duration::from_mins(1);

#[test]
fn what_is_framed_in_two_ways_reaches_a_provider_in_one() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let endpoint = provider.endpoint(|_| answer_json(200, &json!({"of": "the endpoint"})));
        let smuggled = provider.endpoint(|_| answer_json(200, &json!({"of": "a smuggled request"})));
        let inner = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", smuggled.path, provider.authority());
        let target = format!("/v1/forward?u={}", encoded(&endpoint.url));
        let chunked = "Transfer-Encoding: chunked\r\n";
        let length = inner.len() + 5;
        let last = format!("0\r\n\r\n{inner}");
        let sized = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
        for (headers, body) in [
            (format!("Content-Length: {length}\r\n{chunked}"), &last),
            (format!("{chunked}Content-Length: {length}\r\n"), &last),
            (format!("Content-Length: 4\r\n{chunked}"), &sized),
            (format!("Content-Length: {length}\r\nTransfer-Encoding: identity\r\n"), &last),
            (format!("Content-Length: {length}\r\nTransfer-Encoding: xchunked\r\n"), &last),
            (format!("Content-Length: {length}\r\nTransfer-Encoding : chunked\r\n"), &last),
            (format!("Content-Length: {length}\r\nTransfer-Encoding:\x0bchunked\r\n"), &last),
            (format!("Content-Length: {length}\r\nX: a\r\n Transfer-Encoding: chunked\r\n"), &last),
            (format!("{chunked}Transfer-Encoding: identity\r\n"), &last),
            ("Transfer-Encoding: chunked, identity\r\n".to_owned(), &last),
            ("Transfer-Encoding: gzip, chunked\r\n".to_owned(), &sized),
            (format!("Content-Length: {length}\r\nContent-Length: 5\r\n"), &last),
            (format!("Content-Length: 5, {length}\r\n"), &last),
            (format!("Content-Length: +{length}\r\n"), &last),
            (chunked.to_owned(), &format!("0x{sized}")),
            (chunked.to_owned(), &format!("-1\r\n{sized}")),
            (chunked.to_owned(), &format!("1\r\nab\r\n{last}")),
            (chunked.to_owned(), &format!("ffffffffffffffff1\r\n{inner}")),
            (chunked.to_owned(), &last),
        ] {
            let mut connection = Connection::open(merchant.gateway()).await.unwrap();
            let request = format!(
                "POST {target} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Type: text/plain\r\n\
                 {headers}\r\n{body}",
                merchant.secret_key
            );
            // The gateway may answer before everything is written.
            let _ = connection.write.write_all(request.as_bytes()).await;
            let _ = connection.write.shutdown().await;
            while let Ok(response) = connection.response("POST").await {
                assert!(!response.text().contains("smuggled"), "{headers}{body}: {}", response.text());
            }
            // Connections to the provider are as they were.
            let plain = merchant.call(&merchant.secret_key, &endpoint.url).await.expect(200);
            assert_eq!(plain["of"], "the endpoint", "{headers}{body}");
        }
        assert!(smuggled.calls().is_empty(), "a request was smuggled");
        for call in endpoint.calls() {
            let framings = call.head.all("content-length").len() + call.head.all("transfer-encoding").len();
            assert_eq!(framings, 1, "{:?}", call.head);
        }
        merchant.nothing_is_held().await;
    });
}

/// A caller frames a request in two ways, and a second request stands behind it: the chunks are what counts, and the
/// connection is closed, so that nobody reads the second one as part of another's.
#[test]
fn a_request_with_two_framings_is_the_last_of_its_connection() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({})));
        let chunked = "Transfer-Encoding: chunked\r\n";
        for (headers, answers) in [
            (chunked.to_owned(), 2),
            (format!("Content-Length: 5\r\n{chunked}"), 1),
            (format!("{chunked}Content-Length: 5\r\n"), 1),
            (format!("Content-Length: 500\r\n{chunked}"), 1),
        ] {
            let authorization = format!("Host: a\r\nAuthorization: Bearer {}\r\n", merchant.secret_key);
            let requests = format!(
                "POST /v1/forward?u={} HTTP/1.1\r\n{authorization}{headers}\r\n0\r\n\r\n\
                 POST /v1/forward?u={} HTTP/1.1\r\n{authorization}Connection: close\r\nContent-Length: 0\r\n\r\n",
                encoded(&endpoint.url),
                encoded(&endpoint.url)
            );
            let before = endpoint.calls().len();
            let mut connection = Connection::open(merchant.gateway()).await.unwrap();
            connection.write.write_all(requests.as_bytes()).await.unwrap();
            let mut answered = 0;
            // Ends when the gateway closes the connection.
            while connection.response("POST").await.is_ok() {
                answered += 1;
            }
            assert_eq!(answered, answers, "{headers}");
            assert_eq!(endpoint.calls().len() - before, answers, "{headers}");
        }
    });
}

/// Sends a request on a connection that others use as well, and reads the response.
async fn exchange(connection: &mut Connection, request: &Request) -> Response {
    let exchange = async {
        connection.send(request).await?;
        connection.response(&request.method).await
    };
    let response = tokio::time::timeout(EXCHANGE, exchange).await.expect("the response comes to its end");
    response.expect("the connection goes on")
}

/// A provider frames a response in two ways, with a forged response in its body: whoever gets it, at once or replayed, gets all
/// of it in one way, and the next request on the connection gets its own response.
#[test]
fn a_response_with_two_framings_reaches_callers_in_one() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let next = provider.endpoint(|_| answer_json(200, &json!({"of": "the next request"})));
        let next = forward("GET", &next.url).bearer(&merchant.secret_key);
        let body = "okHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
        let in_chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let (in_chunks, chunked) = (in_chunks.as_str(), "Transfer-Encoding: chunked\r\n");
        let length = body.len().to_string();
        for (headers, sent) in [
            (format!("Content-Length: 2\r\n{chunked}"), in_chunks),
            (format!("{chunked}Content-Length: 2\r\n"), in_chunks),
            (format!("Content-Length: 5\r\n{chunked}"), in_chunks),
            (format!("Content-Length: 100\r\n{chunked}"), in_chunks),
            (format!("Content-Length: 2\r\nContent-Length: 5\r\n{chunked}"), in_chunks),
            (format!("Content-Length: x\r\n{chunked}"), in_chunks),
            (format!("Content-Length: 2\r\nConnection: Transfer-Encoding\r\n{chunked}"), in_chunks),
            ("Content-Length: 2\r\nTransfer-Encoding: identity, chunked\r\n".to_owned(), in_chunks),
            ("Content-Length: 2\r\nTransfer-Encoding: identity\r\n".to_owned(), body),
            ("Content-Length: 100\r\nTransfer-Encoding: identity\r\n".to_owned(), body),
            (format!("Content-Length: {length}, {length}\r\n"), body),
            (format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"), body),
            ("Trailer: X-Last\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\n".to_owned(), body),
        ] {
            let response = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{headers}\r\n{sent}");
            let endpoint =
                provider.endpoint(move |_| vec![Step::Bytes(response.clone().into_bytes()), Step::Close]);
            let call = forward("POST", &endpoint.url).bearer(&merchant.secret_key);
            let call = call.json(&json!({"input": "hello"}));
            let keyed = call.clone().header("Idempotency-Key", endpoint.path.as_str());
            let mut connection = Connection::open(merchant.gateway()).await.unwrap();
            for (request, is_replay) in [(&call, false), (&keyed, false), (&keyed, true)] {
                let response = exchange(&mut connection, request).await;
                assert_eq!((response.status, response.complete), (200, true), "{headers}");
                assert_eq!(response.text(), body, "{headers}");
                let replayed = response.head.header("idempotency-replayed");
                assert_eq!(replayed, is_replay.then_some("true"), "{headers}");
                let framing = ["content-length", "transfer-encoding"].map(|name| response.head.all(name));
                let has_length = framing == [vec![length.as_str()], vec![]];
                let is_chunked = framing == [vec![], vec!["chunked"]];
                assert!(has_length || (is_chunked && !is_replay), "{headers}: {framing:?}");
                for name in ["trailer", "keep-alive", "upgrade"] {
                    assert_eq!(response.head.header(name), None, "{headers}");
                }
                let own = exchange(&mut connection, &next).await;
                assert_eq!(own.expect(200)["of"], "the next request", "{headers}");
            }
            assert_eq!(endpoint.calls().len(), 2, "{headers}");
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_response_whose_length_is_uncertain_is_refused() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let chunked = "2\r\n{}\r\n0\r\n\r\n";
        for (version, headers, sent) in [
            ("1.1", "Content-Length: 2\r\nContent-Length: 5\r\n", "{}"),
            ("1.1", "Content-Length: 2, 5\r\n", "{}"),
            ("1.1", "Content-Length: 2,\r\n", "{}"),
            ("1.1", "Content-Length: +2\r\n", "{}"),
            ("1.1", "Content-Length: 0x2\r\n", "{}"),
            ("1.1", "Content-Length: 2\r\nTransfer-Encoding: gzip\r\n", "{}"),
            ("1.1", "Content-Length: 2\r\nTransfer-Encoding: xchunked\r\n", "{}"),
            ("1.1", "Transfer-Encoding: gzip, chunked\r\n", chunked),
            ("1.1", "Transfer-Encoding: chunked, chunked\r\n", chunked),
            ("1.1", "Transfer-Encoding: chunked, identity\r\n", chunked),
            ("1.0", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", chunked),
        ] {
            let response =
                format!("HTTP/{version} 200 OK\r\nContent-Type: application/json\r\n{headers}\r\n{sent}");
            let endpoint =
                provider.endpoint(move |_| vec![Step::Bytes(response.clone().into_bytes()), Step::Close]);
            let refused = merchant.call(&merchant.secret_key, &endpoint.url).await;
            assert_eq!(refused.status, 502, "{headers}: {}", refused.text());
            refused.refused(502, "provider_unreachable");
            merchant.failed(&refused).await;
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_response_without_a_body_announces_at_most_one_length() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let next = provider.endpoint(|_| answer_json(200, &json!({"of": "the next request"})));
        let next = forward("GET", &next.url).bearer(&merchant.secret_key);
        for (method, status, headers, length) in [
            ("HEAD", 200, vec![("Content-Length", "46")], Some("46")),
            ("HEAD", 200, vec![("Content-Length", "46"), ("Content-Length", "46")], Some("46")),
            ("HEAD", 200, vec![("Content-Length", "46, 46")], Some("46")),
            ("HEAD", 200, vec![("Content-Length", "2"), ("Content-Length", "46")], None),
            ("HEAD", 200, vec![("Content-Length", "2"), ("Transfer-Encoding", "chunked")], None),
            ("GET", 204, vec![("Content-Length", "46")], None),
            ("POST", 204, vec![("Content-Length", "2"), ("Content-Length", "46")], None),
            ("POST", 204, vec![("Content-Length", "2"), ("Transfer-Encoding", "chunked")], None),
            ("GET", 304, vec![("Content-Length", "46")], None),
            ("POST", 304, vec![("Content-Length", "x")], None),
        ] {
            let answer = headers.clone();
            let endpoint = provider.endpoint(move |_| vec![head(status, &answer), Step::Close]);
            let call = forward(method, &endpoint.url).bearer(&merchant.secret_key);
            let call = call.header("Idempotency-Key", endpoint.path.as_str());
            let mut connection = Connection::open(merchant.gateway()).await.unwrap();
            // The second POST is replayed.
            for _ in 0..2 {
                let response = exchange(&mut connection, &call).await;
                assert_eq!((response.status, response.body.len()), (status, 0), "{method} {headers:?}");
                // The HTTP library may announce that nothing follows.
                let announced = response.head.all("content-length").into_iter();
                let announced: Vec<&str> = announced.filter(|length| *length != "0").collect();
                assert_eq!(announced, length.into_iter().collect::<Vec<_>>(), "{method} {headers:?}");
                assert_eq!(response.head.header("transfer-encoding"), None, "{method} {headers:?}");
                let own = exchange(&mut connection, &next).await;
                assert_eq!(own.expect(200)["of"], "the next request", "{method} {headers:?}");
            }
        }
        merchant.nothing_is_held().await;
    });
}

#[test]
fn heads_trailers_and_chunks_without_an_end_are_cut_off() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let chunked = || head(200, &[("Transfer-Encoding", "chunked")]);
        for (what, begin) in [
            ("status", vec![Step::Bytes(b"HTTP/1.1 200 ".to_vec())]),
            ("header name", vec![Step::Bytes(b"HTTP/1.1 200 OK\r\n".to_vec())]),
            ("header", vec![Step::Bytes(b"HTTP/1.1 200 OK\r\nX: ".to_vec())]),
            ("chunk size", vec![chunked(), Step::Bytes(b"5".to_vec())]),
            ("chunk extension", vec![chunked(), Step::Bytes(b"5;".to_vec())]),
            ("trailer", vec![chunked(), Step::Bytes(b"2\r\n{}\r\n0\r\nX: ".to_vec())]),
        ] {
            let sent: Arc<AtomicU64> = Arc::default();
            let flood = Step::Flood(ENDLESS, Arc::clone(&sent));
            let endpoint = provider.endpoint(move |_| [begin.clone(), vec![flood.clone()]].concat());
            let response = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
            assert!(response.status == 502 || !response.complete, "{what}: {}", response.status);
            let call = endpoint.only_call();
            eventually("the provider is left", async || call.was_left().then_some(())).await;
            assert!(sent.load(Ordering::SeqCst) < ENDLESS / 4, "{what}: {sent:?} bytes were read");
        }
        merchant.nothing_is_held().await;
        assert!(merchant.events().await.iter().all(|event| event.kind != "request.metered"));
    });
}

#[test]
fn lines_and_strings_without_an_end_take_no_memory() {
    const LINE: u64 = 48 * MIB;
    run(async {
        let merchant = Merchant::funded("10").await;
        let gateway = SideGateway::start(merchant.instance, &["--allow-address=127.0.0.0/8"]).await;
        let provider = &merchant.instance.provider;
        let json = || head(200, &[("Content-Type", "application/json"), ("Connection", "close")]);
        let event = head(200, &[("Content-Type", "text/event-stream"), ("Connection", "close")]);
        let small = provider.endpoint(|_| answer_json(200, &json!({})));
        let call = async |url: &str| {
            let mut connection = Connection::open(gateway.address).await.unwrap();
            connection.send(&forward("GET", url).bearer(&merchant.secret_key)).await.unwrap();
            connection.head("GET").await.unwrap();
            let mut bytes = 0;
            // One that ends within a document breaks off.
            while let Ok(Some(piece)) = connection.read.piece().await {
                bytes += piece.len() as u64;
            }
            bytes
        };
        call(&small.url).await;
        let before = resident_kib(gateway.pid());
        for begin in [
            vec![json(), Step::Bytes(b"{\"a\":\"".to_vec())],
            vec![json(), Step::Bytes(b"{\"usage\":{\"tokens\":\"".to_vec())],
            vec![event.clone(), Step::Bytes(b"data: {\"usage\":\"".to_vec())],
            vec![event, Step::Bytes(b"da".to_vec())],
        ] {
            let steps = [begin, vec![Step::Flood(LINE, Arc::default()), Step::Close]].concat();
            let endpoint = provider.endpoint(move |_| steps.clone());
            assert!(call(&endpoint.url).await > LINE);
        }
        let taken = resident_kib(gateway.pid()).saturating_sub(before);
        assert!(taken < LINE / 1024 / 3, "the gateway took {taken} KiB for lines of {LINE} bytes");
    });
}
