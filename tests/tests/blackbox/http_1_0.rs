//! Callers that speak HTTP/1.0, which has no chunks: a body of unknown length ends with the connection. A response that
//! breaks off must not look like a whole one.

use std::io;

use farthing_tests::client::Connection;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Step, chunk, event_stream, last_chunk, whole};
use farthing_tests::run;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

/// The head and the body of the response to a call over HTTP/1.0, and how it ended.
async fn called(merchant: &Merchant, endpoint: &Endpoint) -> (String, Vec<u8>, io::Result<()>) {
    let mut connection = Connection::open(merchant.gateway()).await.unwrap();
    let request = forward("GET", &endpoint.url);
    let head = format!(
        "GET {} HTTP/1.0\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n",
        request.target, merchant.secret_key
    );
    connection.write.write_all(head.as_bytes()).await.unwrap();
    let head = connection.head("GET").await.unwrap();
    assert!(head.first_line.starts_with("HTTP/1.0 200 "), "{head:?}");
    let (body, end) = connection.read.rest().await;
    (head.header("x-service-request-id").unwrap().to_owned(), body, end)
}

#[test]
fn a_response_that_breaks_off_ends_in_a_reset_and_a_whole_one_does_not() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let provider = &merchant.instance.provider;
        let event = "data: {\"usage\":{\"tokens\":7}}\n\n";
        let streamed = provider.endpoint(move |_| vec![event_stream(), chunk(event), last_chunk()]);
        let (id, body, end) = called(&merchant, &streamed).await;
        end.expect("a whole response ends without an error");
        assert_eq!(String::from_utf8(body).unwrap(), event);
        let metered = merchant.log.event(&format!("{id}/metered")).await.expect("it is charged");
        assert_eq!(metered.body["marks"], json!([]));

        let of_known_length = provider.endpoint(|_| whole(200, &[], b"{\"usage\":{\"tokens\":1}}"));
        let (_, body, end) = called(&merchant, &of_known_length).await;
        end.expect("a whole response ends without an error");
        assert_eq!(body, b"{\"usage\":{\"tokens\":1}}");

        let cut = provider.endpoint(move |_| vec![event_stream(), chunk(event), Step::Close]);
        let (id, body, end) = called(&merchant, &cut).await;
        let end = end.expect_err("a cut response looks complete");
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset, "{end}");
        assert!(event.as_bytes().starts_with(&body), "{body:?}");
        let metered =
            merchant.log.event(&format!("{id}/metered")).await.expect("what was reported is charged");
        assert_eq!(metered.body["marks"], json!(["partial"]));
        merchant.nothing_is_held().await;
    });
}
