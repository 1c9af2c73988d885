//! Trailers: headers that follow a chunked body. The gateway passes none, in either direction.

use std::net::SocketAddr;

use farthing_tests::client::{Body, Connection, Request, Response, chunked};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Call, Step, chunk, head, json as answer_json};
use farthing_tests::run;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::endpoints::Endpoints;

/// More than is read ahead of a JSON body.
const LONG: usize = 300 * 1024;

/// Sends `request` with this body in one chunk, and with trailers.
async fn send_with_trailers(
    to: SocketAddr,
    request: Request,
    body: &[u8],
    trailers: &[(&str, String)],
) -> Response {
    let names: Vec<_> = trailers.iter().map(|(name, _)| *name).collect();
    let request = request.header("TE", "trailers").header("Trailer", names.join(", "));
    let request = request.body(Body::Chunks(Vec::new()));
    let mut bytes = [&chunked(body)[..], b"0\r\n"].concat();
    for (name, value) in trailers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    let mut connection = Connection::open(to).await.unwrap();
    connection.send_head(&request).await.unwrap();
    connection.write.write_all(&bytes).await.unwrap();
    connection.response(&request.method).await.unwrap()
}

/// The trailers that an attacker sends with a secret.
fn trailers_with(secret: &str) -> Vec<(&'static str, String)> {
    vec![
        ("x-farthing", secret.to_owned()),
        ("authorization", format!("Bearer {secret}")),
        ("x-api-key", secret.to_owned()),
        ("cookie", format!("key={secret}")),
    ]
}

fn received_nothing_of(secret: &str, call: &Call) {
    assert!(call.body_complete);
    assert!(call.trailers.is_empty(), "the provider received {:?}", call.trailers);
    assert_eq!(call.head.all("trailer"), [""; 0]);
    let head = format!("{:?}", call.head);
    assert!(!head.contains(secret), "the provider received {head}");
}

/// A secret after the body, where no header is searched any more: at each endpoint, in bodies that are read whole and in
/// bodies that stream.
#[test]
fn a_secret_in_a_trailer_reaches_no_provider() {
    run(async {
        let endpoints = Endpoints::start(&[("Content-Type", "application/json")]).await;
        let merchant = Merchant::funded("100").await;
        let spend_key = merchant.spend_keys(1).await.remove(0);
        let secrets = [spend_key.as_str(), merchant.secret_key.as_str()];
        let mut sent = 0;
        for secret in secrets {
            for call in endpoints.calls() {
                let Body::Whole(body) = call.request.body.clone() else { panic!("{}", call.target()) };
                let asked = call.request.clone().header("x-api-key", merchant.secret_key.as_str());
                let response =
                    send_with_trailers(endpoints.address(), asked, &body, &trailers_with(secret)).await;
                assert_eq!(response.status, 200, "{}: {}", call.target(), response.text());
                sent += 1;
                assert_eq!(endpoints.received(), sent, "{}", call.target());
                received_nothing_of(secret, &call.reaches.calls().pop().unwrap());
            }
        }

        let endpoint = merchant.instance.provider.endpoint(|_| answer_json(200, &json!({"a": 1})));
        for secret in secrets {
            for content_type in ["text/plain", "application/json"] {
                for body in [b"1".to_vec(), vec![b'1'; LONG]] {
                    // The spend key is the credential of the call.
                    let call = forward("POST", &endpoint.url).bearer(&spend_key);
                    let call = call.header("Content-Type", content_type);
                    let trailers = trailers_with(secret);
                    let response = send_with_trailers(merchant.gateway(), call, &body, &trailers).await;
                    response.expect(200);
                    let received = endpoint.calls().pop().unwrap();
                    received_nothing_of(secret, &received);
                    assert_eq!(received.body, body, "{content_type}");
                }
            }
        }
        merchant.nothing_is_held().await;
    });
}

/// A provider sends headers after its body, past everything that confines its headers. The body is whole without them, and
/// is charged.
#[test]
fn a_providers_trailers_are_left_out() {
    const BODY: &str = r#"{"usage":{"tokens":1}}"#;
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("10").await;
        let credential = merchant.billing(&customer, &merchant.call_meter("0.01").await);
        for status in [200, 401] {
            let endpoint = merchant.instance.provider.endpoint(move |_| {
                let headers = [
                    ("Content-Type", "application/json"),
                    ("Transfer-Encoding", "chunked"),
                    ("Trailer", "X-Sum, Set-Cookie"),
                ];
                let trailers = b"0\r\nX-Sum: 5\r\nSet-Cookie: a=b\r\n\r\n";
                vec![head(status, &headers), chunk(BODY), Step::Bytes(trailers.to_vec())]
            });
            let call = forward("POST", &endpoint.url).bearer(&credential).header("TE", "trailers");
            let call = call.json(&json!({"a": 1}));
            let mut connection = Connection::open(merchant.gateway()).await.unwrap();
            // The connection goes on after it.
            for _ in 0..2 {
                connection.send(&call).await.unwrap();
                let response = connection.response("POST").await.unwrap();
                assert_eq!((response.status, response.complete), (status, true), "{}", response.text());
                assert_eq!(response.text(), BODY);
                assert_eq!(response.head.all("trailer"), [""; 0]);
                assert!(connection.read.trailers().is_empty(), "{:?}", connection.read.trailers());
                if status == 200 {
                    merchant.charged(&response).await;
                }
            }

            // A response with trailers is not stored, and its provider is not called again.
            let keyed = call.header("Idempotency-Key", format!("with-trailers-{status}"));
            let first = keyed.send(merchant.gateway()).await.unwrap();
            assert_eq!((first.status, first.text().as_str()), (status, BODY));
            keyed.send(merchant.gateway()).await.unwrap().refused(409, "idempotency_completed");
            assert_eq!(endpoint.calls().len(), 3);
        }
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "9.9700000000");
    });
}
