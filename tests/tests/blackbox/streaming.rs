//! Bodies stream both ways, byte for byte, at the pace of the slower side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farthing_tests::client::{Connection, Request, chunked};
use farthing_tests::merchant::{Merchant, chunks, forward};
use farthing_tests::provider::{Gate, Step, chunk, event_stream, head, json, last_chunk, whole};
use farthing_tests::run;
use farthing_tests::wait::{eventually, settled};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

const MEBIBYTE: u64 = 1024 * 1024;

/// More bytes than all buffers on the way can hold: the socket buffers of both connections at their maximum, and those of
/// the processes.
fn stalled() -> u64 {
    let most = |name: &str| -> u64 {
        let bounds = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        bounds.split_whitespace().last().unwrap().parse().unwrap()
    };
    2 * (most("tcp_rmem") + most("tcp_wmem")) + 8 * MEBIBYTE
}

/// A larger body.
fn large() -> u64 {
    (stalled() + 16 * MEBIBYTE).next_multiple_of(MEBIBYTE)
}

async fn opened(merchant: &Merchant, request: &Request) -> Connection {
    let mut connection = Connection::open(merchant.gateway()).await.unwrap();
    connection.send(&request.clone().bearer(&merchant.secret_key)).await.unwrap();
    connection
}

#[test]
fn a_large_response_waits_for_a_stalled_caller() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let (sent, large) = (Arc::new(AtomicU64::new(0)), large());
        let counter = Arc::clone(&sent);
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let length = large.to_string();
            let headers = [("Content-Type", "application/octet-stream"), ("Content-Length", length.as_str())];
            vec![head(200, &headers), Step::Flood(large, Arc::clone(&counter))]
        });
        let mut connection = opened(&merchant, &forward("GET", &endpoint.url)).await;
        connection.head("GET").await.unwrap();
        let stalled_at = settled(Duration::from_millis(500), async || sent.load(Ordering::SeqCst)).await;
        assert!(
            stalled_at < stalled(),
            "the provider could send {stalled_at} bytes to a caller that read none"
        );
        let mut length = 0_u64;
        while let Some(piece) = connection.read.piece().await.unwrap() {
            assert!(piece.iter().all(|byte| *byte == b'x'));
            length += piece.len() as u64;
        }
        assert_eq!(length, large);
    });
}

#[test]
fn a_large_request_waits_for_a_stalled_provider() {
    run(async {
        let (merchant, large) = (Merchant::funded("1").await, large());
        let gate = Gate::default();
        let endpoint =
            merchant.instance.provider.endpoint_that_reads_late(gate.clone(), |_| json(200, &json!({})));
        let request = forward("POST", &endpoint.url)
            .header("Content-Length", large.to_string())
            .bearer(&merchant.secret_key);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send_head(&request).await.unwrap();
        let sent = Arc::new(AtomicU64::new(0));
        let (mut write, counter) = (connection.write, Arc::clone(&sent));
        let sending = tokio::spawn(async move {
            let piece = vec![b'y'; 64 * 1024];
            while counter.load(Ordering::SeqCst) < large {
                let written = write.write(&piece).await.unwrap();
                counter.fetch_add(written as u64, Ordering::SeqCst);
            }
            write
        });
        let stalled_at = settled(Duration::from_millis(500), async || sent.load(Ordering::SeqCst)).await;
        assert!(stalled_at < stalled(), "the gateway took {stalled_at} bytes for a provider that read none");
        gate.open();
        let write = sending.await.unwrap();
        let answer = connection.read.head().await.unwrap().unwrap();
        assert!(answer.first_line.contains(" 200 "), "{answer:?}");
        assert_eq!(endpoint.body_bytes(), large);
        drop(write);
    });
}

#[test]
fn a_request_body_is_forwarded_while_the_caller_still_writes() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|call| whole(200, &[], &call.body));
        let request = forward("POST", &endpoint.url)
            .header("Transfer-Encoding", "chunked")
            .bearer(&merchant.secret_key);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send_head(&request).await.unwrap();
        connection.write.write_all(&chunked(b"first ")).await.unwrap();
        eventually("the first chunk arrives", async || (endpoint.body_bytes() == 6).then_some(())).await;
        connection.write.write_all(&chunked(b"second")).await.unwrap();
        connection.write.write_all(b"0\r\n\r\n").await.unwrap();
        let response = connection.response("POST").await.unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "first second"));
    });
}

#[test]
fn chunked_and_sized_bodies_arrive_as_they_were_sent() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|call| whole(200, &[], &call.body));
        let chunked = forward("POST", &endpoint.url).body(chunks(&["{\"a\"", ":", "1}", " ", "\0\u{1F600}"]));
        let response = merchant.send(&merchant.secret_key, chunked).await;
        assert_eq!(response.body, "{\"a\":1} \0\u{1F600}".as_bytes());
        let empty = forward("POST", &endpoint.url).body(farthing_tests::client::Body::Whole(Vec::new()));
        let response = merchant.send(&merchant.secret_key, empty).await;
        assert_eq!((response.status, response.body.len()), (200, 0));
        let call = endpoint.calls().pop().unwrap();
        assert_eq!(call.head.header("content-length"), Some("0"));
        assert_eq!(call.head.header("transfer-encoding"), None);
    });
}

#[test]
fn events_pass_byte_for_byte_as_they_arrive() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gates: Vec<Gate> = (0..4).map(|_| Gate::default()).collect();
        let pieces = [
            "data: {\"a\":1}\n\n",
            ": a comment\r\nevent: x\r\ndata: {\"b\":\"\u{1F600}\"}\r\n\r\n",
            "data: half of",
            " an event\n\ndata: {\"usage\":{\"tokens\":3}}\n\n",
            "data: [DONE]\n\n",
        ];
        let waits = gates.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let mut steps = vec![event_stream(), chunk(pieces[0])];
            for (gate, piece) in waits.iter().zip(&pieces[1..]) {
                steps.extend([Step::Wait(gate.clone()), chunk(piece)]);
            }
            steps.push(last_chunk());
            steps
        });
        let mut connection =
            opened(&merchant, &forward("POST", &endpoint.url).json(&json!({"stream": true}))).await;
        let answer = connection.head("POST").await.unwrap();
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        for (at, piece) in pieces.iter().enumerate().take(4) {
            // The provider holds the rest back, so this piece was not buffered.
            let mut seen = Vec::new();
            while seen.len() < piece.len() {
                seen.extend(connection.read.piece().await.unwrap().expect("more to come"));
            }
            assert_eq!(String::from_utf8_lossy(&seen), *piece, "piece {at}");
            gates[at].open();
        }
        let (rest, end) = connection.read.rest().await;
        end.unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), pieces[4]);
        let id = answer.header("x-service-request-id").unwrap();
        let metered = merchant.log.event(&format!("{id}/metered")).await.expect("settled before the end");
        assert_eq!(metered.body["usage"]["tokens"]["input"], 3);
    });
}

#[test]
fn a_response_that_ends_with_the_connection_passes_complete() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| {
            let body = br#"{"usage":{"tokens":5}}"#.to_vec();
            vec![head(200, &[("Content-Type", "application/json")]), Step::Bytes(body), Step::Close]
        });
        let response = merchant.fetch(&merchant.secret_key, &endpoint.url).await;
        response.expect(200);
        assert_eq!(merchant.charged(&response).await["usage"]["tokens"]["input"], 5);
    });
}

#[test]
fn provider_errors_and_redirects_pass_through_and_are_not_charged() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let customer = merchant.customer("1").await;
        let meter = merchant.call_meter("0.1").await;
        for status in [301, 302, 307, 400, 401, 402, 404, 418, 429, 500, 503] {
            let endpoint = merchant.instance.provider.endpoint(move |_| {
                let headers = [("Content-Type", "text/plain"), ("Location", "http://example.com/elsewhere")];
                whole(status, &headers, b"the provider's own words {\"usage\":{\"tokens\":1000}}")
            });
            let response = merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await;
            assert_eq!(response.status, status);
            assert_eq!(response.body, b"the provider's own words {\"usage\":{\"tokens\":1000}}");
            assert_eq!(response.head.header("location"), Some("http://example.com/elsewhere"));
            assert_eq!(endpoint.calls().len(), 1, "a redirect is not followed");
            let failed = merchant.failed(&response).await;
            assert_eq!(failed["reason"], "provider_status");
            assert_eq!(failed["http_status"], status);
            let shown = merchant.shown(&response.request_id(), "error").await;
            assert_eq!(shown["total_request_cost"], "0.0000000000");
        }
        assert_eq!(merchant.balance(&customer).await, "1.0000000000");
        merchant.nothing_is_held().await;
    });
}

#[test]
fn a_connection_carries_many_calls_in_a_row() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|call| whole(200, &[], &call.body));
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        let mut ids = std::collections::HashSet::new();
        for number in 0..50 {
            let request = forward("POST", &endpoint.url).bearer(&merchant.secret_key).json(&json!(number));
            connection.send(&request).await.unwrap();
            let response = connection.response("POST").await.unwrap();
            assert_eq!((response.status, response.json()), (200, json!(number)));
            assert!(ids.insert(response.request_id()));
        }
    });
}
