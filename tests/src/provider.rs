//! A provider that a test controls: every byte and every pause of its responses, and a journal of its calls.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::client::chunked;
use crate::wire::{Head, Wire};

/// Bytes of one write of a flood.
const FLOOD_PIECE: usize = 64 * 1024;

/// A gate that a provider waits at until the test opens it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Gate {
    /// Opens the gate.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn passed(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// A step of a response.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Waits at a gate.
    Wait(Gate),
    /// Sends so many bytes of body, counting those that the connection accepted.
    Flood(u64, Arc<AtomicU64>),
    /// Waits a while.
    Pause(Duration),
    /// Closes the connection.
    Close,
}

/// A received call.
#[derive(Debug)]
pub struct Call {
    /// The request line and the headers, as received.
    pub head: Head,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the body is complete.
    pub body_complete: bool,
    /// The lines of its trailers.
    pub trailers: Vec<String>,
    /// Whether the response was sent to its last step.
    pub finished: AtomicBool,
    /// Whether the connection was closed before that.
    pub left: AtomicBool,
}

impl Call {
    /// The request target.
    pub fn target(&self) -> &str {
        self.head.first_line.split(' ').nth(1).unwrap_or_default()
    }

    /// The method.
    pub fn method(&self) -> &str {
        self.head.first_line.split(' ').next().unwrap_or_default()
    }

    /// Whether the response was sent to its last step.
    pub fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// Whether the connection was closed before the whole response was sent. Only a step that writes detects it.
    pub fn was_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }
}

type Respond = Arc<dyn Fn(&Call) -> Vec<Step> + Send + Sync>;

#[derive(Clone)]
struct Route {
    respond: Respond,
    before_body: Option<Gate>,
    calls: Arc<Mutex<Vec<Arc<Call>>>>,
    body_bytes: Arc<AtomicU64>,
}

/// A path of the provider with its own response.
#[derive(Clone)]
pub struct Endpoint {
    /// Its URL, without a query.
    pub url: String,
    /// Its path.
    pub path: String,
    route: Route,
}

impl Endpoint {
    /// The complete calls, in order.
    pub fn calls(&self) -> Vec<Arc<Call>> {
        self.route.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The only call; panics unless there is exactly one.
    pub fn only_call(&self) -> Arc<Call> {
        let calls = self.calls();
        assert_eq!(calls.len(), 1, "calls at {}", self.url);
        Arc::clone(&calls[0])
    }

    /// Bytes of bodies read so far, incomplete ones included.
    pub fn body_bytes(&self) -> u64 {
        self.route.body_bytes.load(Ordering::SeqCst)
    }
}

/// The provider: a server of the test.
pub struct Provider {
    address: SocketAddr,
    routes: Arc<Mutex<HashMap<String, Route>>>,
    made: AtomicU64,
}

impl Provider {
    /// Starts on a free port of the loopback.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let routes: Arc<Mutex<HashMap<String, Route>>> = Arc::default();
        let shared = Arc::clone(&routes);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { address, routes, made: AtomicU64::new(0) }
    }

    /// `host:port`.
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// A new path that responds to a call with `respond`.
    pub fn endpoint(&self, respond: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static) -> Endpoint {
        self.endpoint_ending("", respond)
    }

    /// The same, with a path that ends with `suffix`.
    pub fn endpoint_ending(
        &self,
        suffix: &str,
        respond: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
    ) -> Endpoint {
        self.add(suffix, Arc::new(respond), None)
    }

    /// The same, with exactly this path, which has had no endpoint before.
    pub fn endpoint_at(
        &self,
        path: &str,
        respond: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
    ) -> Endpoint {
        self.add_at(path.to_owned(), Arc::new(respond), None)
    }

    /// A new path that answers 200 with one token, once `gate` is open.
    pub fn endpoint_behind(&self, gate: &Gate) -> Endpoint {
        let gate = gate.clone();
        self.endpoint(move |_| {
            let mut steps = vec![Step::Wait(gate.clone())];
            steps.extend(json(200, &serde_json::json!({"usage": {"tokens": 1}})));
            steps
        })
    }

    /// Like [`Self::endpoint`], but reads the request's body only once `gate` is open.
    pub fn endpoint_that_reads_late(
        &self,
        gate: Gate,
        respond: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static,
    ) -> Endpoint {
        self.add("", Arc::new(respond), Some(gate))
    }

    fn add(&self, suffix: &str, respond: Respond, before_body: Option<Gate>) -> Endpoint {
        let path = format!("/t{}{suffix}", self.made.fetch_add(1, Ordering::SeqCst));
        self.add_at(path, respond, before_body)
    }

    fn add_at(&self, path: String, respond: Respond, before_body: Option<Gate>) -> Endpoint {
        let route = Route { respond, before_body, calls: Arc::default(), body_bytes: Arc::default() };
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(routes.insert(path.clone(), route.clone()).is_none(), "{path} has an endpoint already");
        Endpoint { url: format!("http://{}{path}", self.address), path, route }
    }
}

async fn serve(stream: TcpStream, routes: Arc<Mutex<HashMap<String, Route>>>) {
    let _ = stream.set_nodelay(true);
    let (read, mut write) = stream.into_split();
    let mut wire = Wire::new(read);
    while let Ok(Some(head)) = wire.head().await {
        if !matches!(one(head, &mut wire, &mut write, &routes).await, Ok(After::Next)) {
            return;
        }
    }
}

enum After {
    Next,
    Close,
}

async fn one(
    head: Head,
    wire: &mut Wire,
    write: &mut OwnedWriteHalf,
    routes: &Mutex<HashMap<String, Route>>,
) -> io::Result<After> {
    let target = head.first_line.split(' ').nth(1).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let route = routes.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
    let Some(route) = route else {
        write.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await?;
        return Ok(After::Close);
    };
    if let Some(gate) = &route.before_body {
        gate.passed().await;
    }
    wire.expect(head.request_framing());
    let mut body = Vec::new();
    let body_complete = loop {
        match wire.piece().await {
            Ok(Some(piece)) => {
                route.body_bytes.fetch_add(piece.len() as u64, Ordering::SeqCst);
                body.extend_from_slice(&piece);
            }
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    let closes = head.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let trailers = wire.trailers().to_vec();
    let call = Call { head, body, body_complete, trailers, finished: false.into(), left: false.into() };
    let call = Arc::new(call);
    route.calls.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&call));
    if !call.body_complete {
        return Ok(After::Close);
    }
    let done = answer((route.respond)(&call), write).await;
    call.finished.store(done.is_ok(), Ordering::SeqCst);
    call.left.store(done.is_err(), Ordering::SeqCst);
    if closes { Ok(After::Close) } else { done }
}

async fn answer(steps: Vec<Step>, write: &mut OwnedWriteHalf) -> io::Result<After> {
    for step in steps {
        match step {
            Step::Bytes(bytes) => write.write_all(&bytes).await?,
            Step::Wait(gate) => gate.passed().await,
            Step::Flood(mut left, sent) => {
                let piece = vec![b'x'; FLOOD_PIECE];
                while left > 0 {
                    let take = usize::try_from(left).unwrap_or(FLOOD_PIECE).min(FLOOD_PIECE);
                    let written = write.write(&piece[..take]).await?;
                    if written == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    left -= written as u64;
                    sent.fetch_add(written as u64, Ordering::SeqCst);
                }
            }
            Step::Pause(time) => tokio::time::sleep(time).await,
            Step::Close => return Ok(After::Close),
        }
    }
    Ok(After::Next)
}

/// A response head.
pub fn head(status: u16, headers: &[(&str, &str)]) -> Step {
    let mut text = format!("HTTP/1.1 {status} Because\r\n");
    for (name, value) in headers {
        text.extend([*name, ": ", *value, "\r\n"]);
    }
    text.push_str("\r\n");
    Step::Bytes(text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect())
}

/// A whole response of known length.
pub fn whole(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<Step> {
    let length = body.len().to_string();
    let mut all = vec![("Content-Length", length.as_str())];
    all.extend_from_slice(headers);
    vec![head(status, &all), Step::Bytes(body.to_vec())]
}

/// A whole response of JSON text.
pub fn json_text(status: u16, body: &str) -> Vec<Step> {
    whole(status, &[("Content-Type", "application/json")], body.as_bytes())
}

/// A whole response of JSON.
pub fn json(status: u16, body: &Value) -> Vec<Step> {
    json_text(status, &body.to_string())
}

/// The head of an event stream.
pub fn event_stream() -> Step {
    head(200, &[("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
}

/// One chunk of a chunked response.
pub fn chunk(bytes: impl AsRef<[u8]>) -> Step {
    Step::Bytes(chunked(bytes.as_ref()))
}

/// The end of a chunked response.
pub fn last_chunk() -> Step {
    Step::Bytes(b"0\r\n\r\n".to_vec())
}
