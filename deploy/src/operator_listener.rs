//! The operator's address of a process: `GET /metrics`, `/livez` and `/readyz`. Off unless it is asked for, and never at
//! an address for callers: it has no credential.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use farthing_telemetry::{Failing, Telemetry, process};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// The most connections. Further ones wait.
const CONNECTIONS: usize = 32;

/// The time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for a connection, which is for one request: nobody may keep probes and scrapes out.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Flags of roles that an operator watches.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OperatorArgs {
    /// Address to serve the metrics (/metrics) and the state of the process (/livez, /readyz) at. Port 0 picks a free port.
    /// It asks for no credential: keep it off the internet. The default is none.
    #[arg(long, env = "FARTHING_OPERATOR_LISTEN", value_name = "ADDR")]
    operator_listen: Option<SocketAddr>,
}

/// What a process shows to its operator, and where. It is served until the value is dropped.
pub(crate) struct OperatorListener {
    /// What it shows.
    pub(crate) telemetry: Telemetry,
    /// Where it is served, if anywhere.
    pub(crate) address: Option<SocketAddr>,
    _task: Option<AbortOnDropHandle<()>>,
}

impl OperatorArgs {
    /// Starts to serve the state of the process, whose role has this name, before the process waits for anything.
    pub(crate) async fn start(&self, role: &'static str) -> Result<OperatorListener> {
        let telemetry = Telemetry::default();
        process::register(&telemetry.metrics, role, env!("CARGO_PKG_VERSION"));
        let Some(listen) = self.operator_listen else {
            return Ok(OperatorListener { telemetry, address: None, _task: None });
        };
        let failed = || format!("cannot listen on {listen} for the operator");
        let listener = TcpListener::bind(listen).await.with_context(failed)?;
        let address = listener.local_addr().with_context(failed)?;
        tracing::info!(event = "operator.listening", %address, "serving metrics and the state of the process");
        let task = AbortOnDropHandle::new(tokio::spawn(serve(listener, telemetry.clone())));
        Ok(OperatorListener { telemetry, address: Some(address), _task: Some(task) })
    }
}

/// Serves until it is aborted, and all connections with it.
async fn serve(listener: TcpListener, telemetry: Telemetry) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
    loop {
        while connections.try_join_next().is_some() {}
        let place = Arc::clone(&places).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(event = "operator.accept_failed", %error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (http, telemetry) = (http.clone(), telemetry.clone());
        connections.spawn(async move {
            let _place = place;
            let service = service_fn(|request: Request<Incoming>| {
                let telemetry = telemetry.clone();
                async move {
                    Ok::<_, Infallible>(answer(request.method(), request.uri().path(), &telemetry).await)
                }
            });
            let connection = http.serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                tracing::debug!(event = "operator.connection_failed", %error, "a connection ended early");
            }
        });
    }
}

async fn answer(method: &Method, path: &str, telemetry: &Telemetry) -> Response<Full<Bytes>> {
    if !matches!(path, "/metrics" | "/livez" | "/readyz") {
        return response(StatusCode::NOT_FOUND, TEXT, "There are /metrics, /livez and /readyz.\n".to_owned());
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, String::new());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    match path {
        "/metrics" => match telemetry.metrics.text() {
            Ok(text) => response(StatusCode::OK, OPEN_METRICS, text),
            Err(error) => {
                tracing::error!(event = "operator.metrics_failed", %error, "the metrics cannot be written");
                response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, String::new())
            }
        },
        "/livez" => response(StatusCode::OK, TEXT, "The process runs.\n".to_owned()),
        _ => readiness(telemetry.health.failing().await),
    }
}

/// The body of `/readyz`.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    failing: Vec<Failing>,
}

fn readiness(failing: Vec<Failing>) -> Response<Full<Bytes>> {
    let ready = failing.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::to_string(&Readiness { ready, failing }).expect("it has string keys");
    response(status, JSON, body)
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_reads_of_known_paths_are_answered() {
        let telemetry = Telemetry::default();
        for (method, path, status) in [
            (Method::GET, "/metrics", 200),
            (Method::HEAD, "/metrics", 200),
            (Method::GET, "/livez", 200),
            (Method::GET, "/readyz", 503),
            (Method::POST, "/metrics", 405),
            (Method::GET, "/", 404),
            (Method::GET, "/metrics/", 404),
        ] {
            let answered = answer(&method, path, &telemetry).await;
            assert_eq!(answered.status(), status, "{method} {path}");
        }
        telemetry.health.started();
        assert_eq!(answer(&Method::GET, "/readyz", &telemetry).await.status(), 200);
    }
}
