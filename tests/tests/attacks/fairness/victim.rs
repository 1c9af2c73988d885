//! The victim: a merchant whose calls come at a steady pace over a few connections. It has a thread, a runtime and a
//! provider of its own, so that the attacker's work in this process does not delay it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::codings::br;
use farthing_tests::merchant::forward;
use farthing_tests::provider::{
    Call as ProvidersCall, Provider, Step, chunk, event_stream, head, last_chunk, whole,
};
use serde_json::{Value, json};
use tokio::time::sleep_until;

use super::scene::Scene;

const CONNECTIONS: u32 = 4;

/// The time between two calls of a connection.
const PACE: Duration = Duration::from_millis(100);

/// The kinds of the provider's responses.
pub(super) const KINDS: [&str; 3] = ["plain", "streamed", "compressed"];

/// A call of the victim.
pub(super) struct Call {
    pub(super) kind: &'static str,
    /// When it was to be sent.
    pub(super) due: Instant,
    /// From then until the last byte of its response.
    pub(super) latency: Duration,
    /// What its provider reported.
    pub(super) tokens: u64,
    /// The request's id, or what is wrong with its response.
    pub(super) outcome: Result<String, String>,
}

/// The victim, which makes its calls.
pub(super) struct Victim {
    has_ended: Arc<AtomicBool>,
    /// The operating system's number of its thread.
    pub(super) thread_id: u32,
    thread: JoinHandle<Vec<Call>>,
}

impl Victim {
    pub(super) fn start(scene: &Scene) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (to, credential) = (scene.gateway.address, scene.victims_credential.clone());
        let ends = Arc::clone(&has_ended);
        let (tell_id, id) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell_id.send(thread_id()).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(calls(to, &credential, &ends))
        });
        Self { has_ended, thread_id: id.recv().unwrap(), thread }
    }

    /// Ends it; returns its calls.
    pub(super) fn stop(self) -> Vec<Call> {
        self.has_ended.store(true, Ordering::SeqCst);
        self.thread.join().expect("the victim does not panic")
    }
}

fn thread_id() -> u32 {
    let thread = std::fs::read_link("/proc/thread-self").expect("Linux");
    thread.file_name().and_then(|id| id.to_str()?.parse().ok()).expect("a number")
}

async fn calls(to: SocketAddr, credential: &str, has_ended: &AtomicBool) -> Vec<Call> {
    let provider = Provider::start().await;
    let urls: Vec<_> = [plain, streamed, compressed]
        .into_iter()
        .map(|respond| provider.endpoint(move |call| respond(&text(number_of(call)))).url)
        .collect();
    let number = AtomicU64::new(1);
    let start = Instant::now();
    let connections = (0..CONNECTIONS).map(async |connection| {
        let mut calls = Vec::new();
        let mut open = None;
        let mut due = start + PACE * connection / CONNECTIONS;
        while !has_ended.load(Ordering::SeqCst) {
            sleep_until(due.into()).await;
            let number = number.fetch_add(1, Ordering::SeqCst);
            let kind = usize::try_from(number).unwrap() % urls.len();
            let request = forward("POST", &urls[kind]).bearer(credential).json(&json!({"number": number}));
            let answered = async {
                let mut connection = match open.take() {
                    Some(connection) => connection,
                    None => Connection::open(to).await?,
                };
                connection.send(&request).await?;
                let response = connection.response("POST").await?;
                open = Some(connection);
                Ok::<_, std::io::Error>(response)
            };
            let answered = tokio::time::timeout(Duration::from_mins(1), answered).await;
            let latency = due.elapsed();
            let outcome = match answered {
                Ok(Ok(response)) => checked(&request, &response, &expected(kind, number)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("no answer".to_owned()),
            };
            calls.push(Call { kind: KINDS[kind], due, latency, tokens: number, outcome });
            // A call that a late one kept from being sent counts from when it was due.
            due += PACE;
        }
        calls
    });
    futures_util::future::join_all(connections).await.into_iter().flatten().collect()
}

fn checked(request: &Request, response: &Response, expected: &[u8]) -> Result<String, String> {
    if response.status == 200 && response.complete && response.body == expected {
        return Ok(response.request_id());
    }
    let complete = if response.complete { "whole" } else { "broken off" };
    Err(format!("{}: {} {complete}: {}", request.target, response.status, response.text()))
}

fn number_of(call: &ProvidersCall) -> u64 {
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    body["number"].as_u64().unwrap()
}

/// What the provider answers to a call.
fn text(number: u64) -> String {
    json!({"text": "x".repeat(500), "number": number, "usage": {"tokens": number}}).to_string()
}

fn plain(text: &str) -> Vec<Step> {
    whole(200, &[("Content-Type", "application/json")], text.as_bytes())
}

fn streamed(text: &str) -> Vec<Step> {
    vec![event_stream(), chunk("data: {}\n\n"), chunk(event(text)), last_chunk()]
}

fn compressed(text: &str) -> Vec<Step> {
    let headers =
        [("Content-Type", "application/json"), ("Content-Encoding", "br"), ("Transfer-Encoding", "chunked")];
    vec![head(200, &headers), chunk(br(text.as_bytes())), last_chunk()]
}

fn event(text: &str) -> String {
    format!("data: {text}\n\n")
}

/// The body that the caller must get.
fn expected(kind: usize, number: u64) -> Vec<u8> {
    let text = text(number);
    match kind {
        0 => text.into_bytes(),
        1 => format!("data: {{}}\n\n{}", event(&text)).into_bytes(),
        _ => br(text.as_bytes()),
    }
}
