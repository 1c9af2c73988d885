//! The queue of spans that wait to be sent: bounded, and what it drops is counted. The library's own queue drops too, but
//! does not say so before the process ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};

use super::metrics::TraceMetrics;

/// The most spans that wait, about 1 KiB each. A forwarded call has about ten.
const MAX_QUEUED: usize = 4_096;

/// The queue, and the thread of the library that sends what is in it.
#[derive(Debug)]
pub(super) struct Queue {
    queued: Arc<AtomicUsize>,
    metrics: TraceMetrics,
    processor: BatchSpanProcessor,
}

impl Queue {
    /// A queue to `exporter`. `OTEL_BSP_SCHEDULE_DELAY` and `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` say when it sends.
    pub(super) fn new(exporter: impl SpanExporter + 'static, metrics: &TraceMetrics) -> Self {
        let queued = Arc::new(AtomicUsize::new(0));
        let exporter = Counting {
            exporter,
            queued: Arc::clone(&queued),
            metrics: metrics.clone(),
            is_failing: AtomicBool::new(false),
        };
        let config = BatchConfigBuilder::default().with_max_queue_size(MAX_QUEUED).build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        Self { queued, metrics: metrics.clone(), processor }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.queued.fetch_add(1, Ordering::Relaxed) < MAX_QUEUED {
            self.processor.on_end(span);
        } else {
            self.queued.fetch_sub(1, Ordering::Relaxed);
            self.metrics.queue_full.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.processor.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.processor.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.processor.set_resource(resource);
    }
}

/// An exporter that counts what it sends, and logs when the collector fails and when it is back.
#[derive(Debug)]
struct Counting<E> {
    exporter: E,
    queued: Arc<AtomicUsize>,
    metrics: TraceMetrics,
    is_failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Counting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.queued.fetch_sub(count, Ordering::Relaxed);
        let sent = self.exporter.export(batch).await;
        let counter = if sent.is_ok() { &self.metrics.exported } else { &self.metrics.refused };
        counter.inc_by(count as u64);
        match (&sent, self.is_failing.swap(sent.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => tracing::warn!(
                event = "traces.export_failed",
                %error,
                spans = count,
                "spans could not be sent to the collector and are dropped; further failures are only counted"
            ),
            (Ok(()), true) => {
                tracing::info!(event = "traces.export_resumed", "the collector takes spans again");
            }
            (Ok(()), false) | (Err(_), true) => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};

    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;
    use crate::Metrics;

    /// The spans that begin an export, by default.
    const BATCH: usize = 512;

    /// A collector that answers when it is told to, and says how many spans it got.
    #[derive(Debug)]
    struct Slow {
        answers: Mutex<Receiver<OTelSdkResult>>,
        got: Sender<usize>,
    }

    impl SpanExporter for Slow {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let _ = self.got.send(batch.len());
            let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.recv().unwrap_or(Ok(()))
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_never_waits() {
        let ((answer, answers), (got, batches)) = (channel(), channel());
        let metrics = TraceMetrics::new(&Metrics::default());
        let queue = Queue::new(Slow { answers: Mutex::new(answers), got }, &metrics);
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("test");
        let end_spans = |count: usize| (0..count).for_each(|_| drop(tracer.start("span")));
        // The first batch is under way, and the queue behind it is full.
        end_spans(BATCH);
        let first = batches.recv().unwrap();
        end_spans(MAX_QUEUED - (BATCH - first) + 7);
        assert_eq!(metrics.queue_full.get(), 7);
        answer.send(Err(OTelSdkError::InternalFailure("no".to_owned()))).unwrap();
        drop(answer);
        provider.shutdown().unwrap();
        assert_eq!(metrics.refused.get(), first as u64);
        assert_eq!(metrics.exported.get(), MAX_QUEUED as u64);
    }
}
