//! Test over HTTP: every response says that it is a mock's, in every format that the mock speaks, whole and streamed, and
//! of errors, too.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Config, run};

/// The path, the body and the type of the response of each endpoint that a POST calls, whole and streamed.
const POSTS: [(&str, &str, &str); 28] = [
    ("/v1/chat/completions", r#"{"messages":[]}"#, JSON),
    ("/v1/chat/completions", r#"{"messages":[],"stream":true}"#, EVENTS),
    ("/v1/completions", r#"{"prompt":"x"}"#, JSON),
    ("/v1/completions", r#"{"prompt":"x","stream":true}"#, EVENTS),
    ("/v1/responses", r#"{"input":"x"}"#, JSON),
    ("/v1/responses", r#"{"input":"x","stream":true}"#, EVENTS),
    ("/v1/embeddings", r#"{"input":"x"}"#, JSON),
    ("/v1/images/generations", r#"{"prompt":"x"}"#, JSON),
    ("/v1/audio/speech", r#"{"input":"x"}"#, "audio/mpeg"),
    ("/v1/audio/speech", r#"{"input":"x","stream_format":"sse"}"#, EVENTS),
    ("/v1/audio/transcriptions", FORM, JSON),
    ("/v1/audio/transcriptions", STREAMED_FORM, EVENTS),
    ("/openai/deployments/d/chat/completions", r#"{"messages":[]}"#, JSON),
    ("/openai/v1/chat/completions", r#"{"messages":[],"stream":true}"#, EVENTS),
    ("/v1/messages", r#"{"messages":[],"max_tokens":9}"#, JSON),
    ("/v1/messages", r#"{"messages":[],"max_tokens":9,"stream":true}"#, EVENTS),
    ("/v1beta/models/m:generateContent", r#"{"contents":[]}"#, JSON),
    ("/v1beta/models/m:streamGenerateContent", r#"{"contents":[]}"#, JSON),
    ("/v1beta/models/m:streamGenerateContent?alt=sse", r#"{"contents":[]}"#, EVENTS),
    ("/v1beta/models/m:embedContent", r#"{"content":{"parts":[{"text":"x"}]}}"#, JSON),
    ("/v1beta/models/m:batchEmbedContents", r#"{"requests":[{"content":{"parts":[]}}]}"#, JSON),
    ("/v2/chat", r#"{"messages":[]}"#, JSON),
    ("/v2/chat", r#"{"messages":[],"stream":true}"#, EVENTS),
    ("/v2/embed", r#"{"texts":["x"]}"#, JSON),
    ("/model/m/converse", r#"{"messages":[]}"#, JSON),
    ("/model/m/converse-stream", r#"{"messages":[]}"#, "application/vnd.amazon.eventstream"),
    ("/usage", "{}", JSON),
    ("/echo", "{}", JSON),
];

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

const FORM: &str = concat!(
    "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n",
    "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nID3\r\n--x--\r\n"
);
const STREAMED_FORM: &str = concat!(
    "--x\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n",
    "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nID3\r\n--x--\r\n"
);

/// The status and the head, in lower case, of the response to a call.
async fn head_of(address: SocketAddr, method: &str, target: &str, body: &str) -> (u16, String) {
    let kind = if body.starts_with("--") { "multipart/form-data; boundary=x" } else { JSON };
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: mock\r\nConnection: close\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    connection.read_to_end(&mut received).await.unwrap();
    let text = String::from_utf8_lossy(&received).into_owned();
    let head = text.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{target}: {text}")), head)
}

fn assert_is_marked(head: &str, call: &str) {
    let marks = head.lines().filter(|line| *line == "x-mock-provider: farthing").count();
    assert_eq!(marks, 1, "{call}: {head}");
}

#[test]
fn every_response_says_that_it_is_of_a_mock() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let free = "127.0.0.1:0".parse().unwrap();
        let config = Config {
            listen: free,
            openai_listen: free,
            anthropic_listen: Some(free),
            google_listen: Some(free),
            journal: None,
        };
        let (ready, addresses) = oneshot::channel();
        let stop = CancellationToken::new();
        let mock = tokio::spawn(run(config, stop.clone(), move |addresses| ready.send(addresses).unwrap()));
        let addresses = addresses.await.unwrap();
        assert_eq!(addresses.len(), 4);
        for (target, body, kind) in POSTS {
            let call = format!("{target} {body}");
            let (status, head) = head_of(addresses[0], "POST", target, body).await;
            assert_eq!(status, 200, "{call}: {head}");
            assert_is_marked(&head, &call);
            assert!(head.contains(&format!("content-type: {kind}")), "{call}: {head}");
            // Errors that are asked for.
            let joint = if target.contains('?') { '&' } else { '?' };
            for asked in [400, 401, 429, 500, 529] {
                let target = format!("{target}{joint}status={asked}");
                let (status, head) = head_of(addresses[0], "POST", &target, body).await;
                assert_eq!(status, asked, "{target}: {head}");
                assert_is_marked(&head, &target);
            }
        }
        // A body that is not accepted, a path that nobody has, and what has no body.
        for (method, target, body, expected) in [
            ("POST", "/v1/chat/completions", "x", 400),
            ("POST", "/v1/completions", "x", 400),
            ("POST", "/v1/messages", "x", 400),
            ("POST", "/v1/audio/transcriptions", "{}", 400),
            ("POST", "/v1/nothing", "{}", 404),
            ("POST", "/v1beta/models/m:nothing", "{}", 404),
            ("POST", "/v2/nothing", "{}", 404),
            ("POST", "/model/m/nothing", "{}", 404),
            ("GET", "/v1/models", "", 200),
            ("GET", "/v1beta/models", "", 200),
            ("HEAD", "/usage", "", 200),
            ("GET", "/usage?status=204", "", 204),
            ("GET", "/usage?stream=true", "", 200),
            ("GET", "/usage?encoding=gzip", "", 200),
            ("GET", "/usage?body=text", "", 200),
            ("GET", "/usage?header=x-more:1", "", 200),
        ] {
            let call = format!("{method} {target}");
            for address in &addresses {
                let (status, head) = head_of(*address, method, target, body).await;
                assert_eq!(status, expected, "{call}: {head}");
                assert_is_marked(&head, &call);
            }
        }
        stop.cancel();
        mock.await.unwrap().unwrap();
    });
}
