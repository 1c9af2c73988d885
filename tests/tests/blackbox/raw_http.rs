//! Bytes that are not an HTTP/1.1 request are answered with the error envelope, and nothing else is rewritten.

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{chunk, head, last_chunk, whole};
use farthing_tests::run;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

async fn answer_to(merchant: &Merchant, bytes: &[u8]) -> Response {
    let mut connection = Connection::open(merchant.gateway()).await.unwrap();
    // The gateway may answer and close the connection before everything is written.
    let _ = connection.write.write_all(bytes).await;
    connection.response("GET").await.unwrap()
}

#[test]
fn an_unreadable_request_is_refused_with_the_envelope() {
    run(async {
        let merchant = Merchant::new().await;
        for bytes in [
            &b"NONSENSE\r\n\r\n"[..],
            b"\0\0\0\0\r\n\r\n",
            b"GET  /v1/requests HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /v1/requests HTTP/9.9\r\n\r\n",
            b"GET /v1/requests HTTP/1.1\r\nNo colon\r\n\r\n",
            b"GET /v1/requests HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
            b"POST /v1/customers HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
            b"POST /v1/customers HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/customers HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
            b"POST /v1/customers HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        ] {
            let shown = String::from_utf8_lossy(bytes);
            let response = answer_to(&merchant, bytes).await;
            assert_eq!(response.status, 400, "{shown}");
            let error = response.refused(400, "validation_error");
            assert_eq!(error["issues"][0]["path"], json!([]), "{shown}");
            assert!(response.complete, "{shown}");
            assert_eq!(response.head.header("connection"), Some("close"), "{shown}");
            assert!(response.request_id().starts_with("req_"), "{shown}");
        }
        merchant.get("/v1/requests").await.expect(200);
    });
}

#[test]
fn too_long_targets_and_heads_have_their_own_codes() {
    run(async {
        let merchant = Merchant::new().await;
        let long = "x".repeat(40_000);
        let request = format!("GET /v1/requests?{long} HTTP/1.1\r\nHost: a\r\n\r\n");
        answer_to(&merchant, request.as_bytes()).await.refused(414, "uri_too_long");
        let many = "X-Again: a\r\n".repeat(1_000);
        let request = format!("GET /v1/requests HTTP/1.1\r\nHost: a\r\n{many}\r\n");
        answer_to(&merchant, request.as_bytes()).await.refused(431, "headers_too_large");
        let endless = "x".repeat(600_000);
        let request = format!("GET /v1/requests HTTP/1.1\r\nHost: a\r\nX: {endless}\r\n\r\n");
        answer_to(&merchant, request.as_bytes()).await.refused(431, "headers_too_large");
    });
}

#[test]
fn an_unreadable_request_does_not_damage_the_response_before_it() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let endpoint = merchant.instance.provider.endpoint(|_| whole(200, &[], b"the answer"));
        for _ in 0..3 {
            let mut connection = Connection::open(merchant.gateway()).await.unwrap();
            for _ in 0..2 {
                let request = forward("GET", &endpoint.url).bearer(&merchant.secret_key);
                connection.send(&request).await.unwrap();
                assert_eq!(connection.response("GET").await.unwrap().text(), "the answer");
            }
            connection.write.write_all(b"NONSENSE\r\n\r\n").await.unwrap();
            connection.response("GET").await.unwrap().refused(400, "validation_error");
            assert!(connection.response("GET").await.is_err(), "the connection is closed");
        }
    });
}

#[test]
fn a_response_that_looks_like_a_bare_error_passes_byte_for_byte() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let bare = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let sized = merchant.instance.provider.endpoint(move |_| whole(200, &[], bare.as_bytes()));
        let streamed = merchant.instance.provider.endpoint(move |_| {
            vec![head(200, &[("Transfer-Encoding", "chunked")]), chunk(bare), chunk(bare), last_chunk()]
        });
        let bad = merchant.instance.provider.endpoint(|_| whole(400, &[("X-Own", "words")], b""));
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        for (endpoint, status, body) in [
            (&sized, 200, bare.to_owned()),
            (&streamed, 200, bare.repeat(2)),
            (&bad, 400, String::new()),
            (&sized, 200, bare.to_owned()),
        ] {
            let request: Request = forward("GET", &endpoint.url).bearer(&merchant.secret_key);
            connection.send(&request).await.unwrap();
            let response = connection.response("GET").await.unwrap();
            assert_eq!((response.status, response.text()), (status, body));
        }
    });
}
