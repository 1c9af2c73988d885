//! Traces: spans of a call and of its stages, which are sent to a collector over OTLP.
//!
//! Invariants: no call waits for the collector. No text of a caller is in a span, unless whoever made the span has checked
//! it. Without a collector nothing is made: a span is then an empty option.

mod budget;
mod collector;
mod metrics;
mod parent;
mod queue;
mod sampler;
mod settings;
mod span;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanKind, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, InstrumentationScope, Key};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::sync::oneshot;

pub use opentelemetry::KeyValue;

use self::budget::Budget;
use self::collector::{CollectorClient, REQUEST_TIMEOUT};
pub use self::metrics::TraceMetrics;
use self::queue::Queue;
use self::sampler::FromGateway;
pub use self::settings::{Invalid, Sampling, TraceSettings, base_endpoint, headers, traces_endpoint};
pub use self::span::Span;

/// How long the spans that wait may take to be sent when the process stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The name of the service in traces, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` have another one.
const SERVICE_NAME: &str = "farthing-gateway";

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// TLS towards the collector.
    #[error("TLS to the collector: {0}")]
    Tls(#[from] farthing_tls::Error),
    /// The exporter refuses its settings.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// Makes the spans of a process. Copies share everything. The default one makes none.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
}

impl Traces {
    /// Makes spans and sends them as `settings` say. To be called within a Tokio runtime.
    pub fn start(settings: &TraceSettings, metrics: &TraceMetrics) -> Result<Self, Error> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorClient::new(settings)?)
            .with_endpoint(settings.endpoint.to_string())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(REQUEST_TIMEOUT)
            .build()?;
        let budget = Budget::new(settings.per_second, metrics.over_limit.clone());
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler::sampler(&settings.sampling, &Arc::new(budget)))
            .with_resource(resource())
            .with_span_processor(Queue::new(exporter, metrics))
            .build();
        let scope = InstrumentationScope::builder("farthing").with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = provider.tracer_with_scope(scope);
        Ok(Self(Some(Arc::new(Inner { tracer, provider }))))
    }

    /// Whether spans are made at all.
    pub const fn are_on(&self) -> bool {
        self.0.is_some()
    }

    /// The span of a request from outside that began at `began`, if it is traced. It continues the trace that its
    /// `headers` name, so it must be known by then who sends them.
    pub fn request(&self, headers: &HeaderMap, name: &'static str, began: SystemTime) -> Span {
        let Some(inner) = &self.0 else { return Span::default() };
        let context = match parent::of(headers) {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Server).with_start_time(began);
        inner.start(builder, &context)
    }

    /// The span of what another gateway of the instance asks for within the span that it names, which it traces.
    pub fn asked_by_gateway(&self, within: Option<&str>, name: &'static str) -> Span {
        let (Some(inner), Some(parent)) = (&self.0, within.and_then(parent::read)) else {
            return Span::default();
        };
        let context = Context::new().with_value(FromGateway).with_remote_span_context(parent);
        inner.start(SpanBuilder::from_name(name).with_kind(SpanKind::Server), &context)
    }

    /// Sends what waits, for at most [`FLUSH_TIMEOUT`], and makes no spans any more.
    pub async fn stop(&self) {
        let Some(inner) = &self.0 else { return };
        let provider = inner.provider.clone();
        let (done, stopped) = oneshot::channel();
        // On a thread of its own, because the library waits without yielding, and the runtime would wait for its own.
        let flush = std::thread::Builder::new().name("traces".to_owned());
        let flush = flush.spawn(move || {
            let _ = done.send(provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        });
        if flush.is_err() || !matches!(stopped.await, Ok(Ok(()))) {
            tracing::warn!(event = "traces.not_flushed", "the last spans could not be sent to the collector");
        }
    }
}

impl Inner {
    fn start(&self, builder: SpanBuilder, context: &Context) -> Span {
        let span = self.tracer.build_with_context(builder, context);
        if span.is_recording() { Span::new(self.tracer.clone(), span) } else { Span::default() }
    }
}

/// What the spans are of: the variables of OpenTelemetry, and this program.
fn resource() -> Resource {
    let name = Key::from_static_str("service.name");
    let named = Resource::builder().build().get(&name).map(|value| value.as_str().into_owned());
    let named = named.filter(|name| !name.is_empty() && !name.starts_with("unknown_service"));
    let named = named.map_or(Cow::Borrowed(SERVICE_NAME), Cow::Owned);
    Resource::builder()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_service_name(named)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_collector_nothing_is_made() {
        let traces = Traces::default();
        let span = traces.request(&HeaderMap::new(), "POST /", SystemTime::now());
        assert!(!traces.are_on() && !span.is_recording());
        assert!(!span.child("a stage").is_recording() && span.trace_id().is_none());
        assert!(!traces.asked_by_gateway(Some("00-01-01-01"), "decide").is_recording());
        traces.stop().await;
    }
}
