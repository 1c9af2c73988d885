//! The HTTP server: reads a call, gets its response and sends it as the controls say.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::{Delivery, Framing, MockBody};
use super::compression::compress;
use super::controls::Controls;
use super::endpoints;
use super::journal::{Arrival, Entry, Journal};
use super::provider_error::Api;
use super::response::{Call, MockResponse, Report};

/// The largest request body that is accepted.
const MAX_BODY_BYTES: usize = 64 << 20;

/// The longest pause that a control may set.
const MAX_PAUSE_MS: usize = 600_000;

/// One of the addresses.
pub(super) struct Listener {
    /// The provider it stands for, such as `openai`.
    pub(super) name: &'static str,
    /// Records the calls.
    pub(super) journal: Arc<Journal>,
}

/// Accepts connections until `stop` is cancelled. Each connection is served by a task in `tasks`.
pub(super) async fn serve(
    listener: Arc<Listener>,
    socket: TcpListener,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(serve_connection(Arc::clone(&listener), stream, stop.clone()));
            }
            Err(error) => {
                tracing::warn!(event = "mock_provider.accept_failed", %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve_connection(listener: Arc<Listener>, stream: TcpStream, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let listener = Arc::clone(&listener);
        async move { Ok::<_, Infallible>(handle(&listener, request).await) }
    });
    let connection =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    // A connection fails when the caller or a control breaks it. The journal records how each call ended.
    tokio::select! {
        _ = connection => {}
        () = stop.cancelled() => {}
    }
}

async fn handle(listener: &Listener, request: Request<Incoming>) -> Response<MockBody> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
    let (body, error) = match body {
        Ok(body) => (body.to_bytes(), None),
        Err(error) => (Bytes::new(), Some(error.to_string())),
    };
    // The marker is no query parameter: it would be part of the target.
    let marker = Controls::new(None, &head.headers).with_text(&body).text("marker");
    let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let arrival = Arrival { listener: listener.name, method: head.method.as_str(), target, marker };
    let entry = listener.journal.arrived(arrival);
    let controls = Controls::new(head.uri.query(), &head.headers).with_text(&body);
    if let Some(pause) = pause(&controls, "delay-ms") {
        tokio::time::sleep(pause).await;
    }
    let call = Call { head: &head, body: &body, controls: &controls, id: &entry.id };
    let response = match error {
        None => endpoints::respond(&call),
        Some(error) => Api::of(&call).error(StatusCode::BAD_REQUEST, &error),
    };
    send(response, &controls, &head.method, entry)
}

fn pause(controls: &Controls<'_>, name: &str) -> Option<Duration> {
    let ms = controls.number(name)?.min(MAX_PAUSE_MS);
    (ms > 0).then(|| Duration::from_millis(ms as u64))
}

/// The HTTP response that sends `response` as the controls say.
fn send(
    response: MockResponse,
    controls: &Controls<'_>,
    method: &Method,
    mut entry: Entry,
) -> Response<MockBody> {
    let status = controls.number("status").and_then(|code| u16::try_from(code).ok());
    let status = status.filter(|code| *code >= 200).and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.unwrap_or(response.status);
    let mut content_type = response.content_type.to_owned();
    let (mut pieces, mut reports) = (response.pieces, VecDeque::from(response.reports));
    let whole_pieces = pieces.len();
    if let Some(text) = controls.text("body") {
        content_type = controls.text("content-type").unwrap_or_else(|| "text/plain".to_owned());
        pieces = vec![Bytes::from(text)];
    }
    let encoding = controls.text("encoding");
    let compressed =
        encoding.as_deref().and_then(|name| compress(name, &pieces.concat())).and_then(Result::ok);
    if let Some(bytes) = &compressed {
        pieces = vec![Bytes::from(bytes.clone())];
    }
    if let (Some(count), [whole]) = (controls.number("chunks"), pieces.as_slice()) {
        pieces = split(whole, count);
    }
    let is_bodiless =
        [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    if *method == Method::HEAD || is_bodiless {
        pieces.clear();
    }
    if pieces.len() != whole_pieces {
        // The body is cut up otherwise: only its end is known to report the usage.
        let whole = response.usage.iter().map(|usage| Report { pieces: pieces.len(), usage: usage.clone() });
        reports = whole.collect();
    }
    let framing = match controls.text("framing").as_deref() {
        Some("length") => Framing::Length,
        Some("chunked") => Framing::Chunked,
        _ if pieces.len() > 1 => Framing::Chunked,
        _ => Framing::Length,
    };
    let delivery = Delivery {
        pieces: pieces.into(),
        reports,
        interval: pause(controls, "interval-ms").unwrap_or_default(),
        break_after: controls.number("break-after"),
        framing,
    };
    entry.status = status.as_u16();
    entry.usage = response.usage;
    let own_headers = response.headers;
    let mut response = Response::new(MockBody::new(delivery, entry));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("x-mock-provider", HeaderValue::from_static("farthing"));
    headers.extend(own_headers);
    if let Ok(value) = content_type.parse() {
        headers.insert(CONTENT_TYPE, value);
    }
    if compressed.is_some()
        && let Some(Ok(value)) = encoding.map(|name| name.parse())
    {
        headers.insert(CONTENT_ENCODING, value);
    }
    for line in controls.all("header") {
        let named = line.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        if let Some((name, value)) = named {
            headers.append(name, value);
        }
    }
    response
}

/// `whole` in up to `count` pieces of about the same size, none of them empty.
fn split(whole: &Bytes, count: usize) -> Vec<Bytes> {
    let size = whole.len().div_ceil(count.max(1)).max(1);
    (0..whole.len()).step_by(size).map(|from| whole.slice(from..whole.len().min(from + size))).collect()
}
