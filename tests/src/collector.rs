//! A collector of traces, as a test has one: it takes spans over OTLP and decodes them with OpenTelemetry's own types.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Message;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;

use crate::client::Request;
use crate::provider::{Call, Endpoint, Gate, Provider, Step, whole};
use crate::wait::{eventually, eventually_ok};

/// The path of traces at a collector.
const PATH: &str = "/v1/traces";

/// A collector.
pub struct Collector {
    endpoint: Endpoint,
}

/// A span, as a collector gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its trace, in hexadecimal digits.
    pub trace_id: String,
    /// Its id.
    pub span_id: String,
    /// The id of its parent; empty for a root.
    pub parent: String,
    /// `tracestate`.
    pub state: String,
    /// When it began and ended, in nanoseconds since the epoch.
    pub times: (u64, u64),
    /// Whether it is marked as failed.
    pub is_error: bool,
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
}

impl Span {
    /// An attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

impl Collector {
    /// A collector that takes everything.
    pub async fn start() -> Self {
        Self::answering(|_| whole(200, &[("Content-Type", "application/x-protobuf")], b"")).await
    }

    /// A collector that takes nothing before `gate` is open.
    pub async fn behind(gate: Gate) -> Self {
        Self::answering(move |_| {
            let mut steps = vec![Step::Wait(gate.clone())];
            steps.extend(whole(200, &[], b""));
            steps
        })
        .await
    }

    async fn answering(answer: impl Fn(&Call) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self { endpoint: Provider::start().await.endpoint_ending(PATH, answer) }
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        self.endpoint.url.strip_suffix(PATH).expect("it ends so")
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Arc<Call>> {
        self.endpoint.calls()
    }

    /// What it got, decoded.
    pub fn messages(&self) -> Vec<ExportTraceServiceRequest> {
        let decode = |call: &Arc<Call>| ExportTraceServiceRequest::decode(&plain(&call.body)[..]);
        let decoded: Result<_, _> = self.requests().iter().map(decode).collect();
        decoded.expect("a request can be decoded")
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        let messages = self.messages();
        let resources = messages.iter().flat_map(|message| &message.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| &scope.spans).map(read).collect()
    }

    /// Waits for the spans of a call, until that of the call itself has come.
    pub async fn trace_of(&self, request_id: &str) -> Vec<Span> {
        eventually_ok("the trace of the call comes", async || {
            let spans = self.spans();
            let call = spans.iter().find(|span| span.get("farthing.request_id") == Some(request_id));
            let Some(trace_id) = call.map(|call| call.trace_id.clone()) else {
                return Err(format!("{spans:?}"));
            };
            Ok(spans.into_iter().filter(|span| span.trace_id == trace_id).collect())
        })
        .await
    }
}

/// A body without its compression. Rotel compresses, whatever it is told.
fn plain(body: &[u8]) -> Vec<u8> {
    if !body.starts_with(&[0x1f, 0x8b]) {
        return body.to_vec();
    }
    let mut plain = Vec::new();
    GzDecoder::new(body).read_to_end(&mut plain).expect("gzip can be decoded");
    plain
}

fn read(span: &Message) -> Span {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    Span {
        name: span.name.clone(),
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state.clone(),
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
        is_error: span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error),
        attributes: span.attributes.iter().map(|pair| (pair.key.clone(), text(pair))).collect(),
    }
}

/// The value of an attribute.
pub fn text(pair: &KeyValue) -> String {
    match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        other => panic!("an attribute of another kind: {}: {other:?}", pair.key),
    }
}

/// Rotel, a collector that others have made. It passes on what it takes. It stops when the value is dropped.
pub struct Rotel {
    process: Child,
    /// Its base URL.
    pub url: String,
}

impl Rotel {
    /// Starts it in front of `collector`; `None` if it is not installed (`tests/collector/install`).
    pub async fn before(collector: &Collector, folder: PathBuf) -> Option<Self> {
        let test = std::env::current_exe().ok()?;
        let target = test.ancestors().find(|folder| folder.join("collector/packages").exists())?;
        let program = target.join("collector/packages/rotel/rotel-agent");
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let [http, grpc] = free_addresses();
        let process = Command::new(program)
            .arg("start")
            .args(["--otlp-http-endpoint", &http.to_string(), "--otlp-grpc-endpoint", &grpc.to_string()])
            .args(["--exporter", "otlp", "--otlp-exporter-protocol", "http"])
            .args(["--otlp-exporter-endpoint", collector.url(), "--otlp-exporter-compression", "none"])
            .arg("--pid-file")
            .arg(folder.join("rotel.pid"))
            .arg("--log-file")
            .arg(folder.join("rotel.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let rotel = Self { process, url: format!("http://{http}") };
        eventually("Rotel listens", async || Request::new("GET", "/").send(http).await.ok()).await;
        Some(rotel)
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Two free addresses.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("a bound listener has an address"))
}
