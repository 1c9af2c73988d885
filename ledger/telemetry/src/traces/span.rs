//! A span of a traced call, or nothing.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::Either;
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span as SdkSpan};

tokio::task_local! {
    /// The span that the task works for.
    static CURRENT: Span;
}

/// A span; nothing if its call is not traced. It ends when its last copy is dropped.
#[derive(Debug, Clone, Default)]
pub struct Span(Option<Arc<Recording>>);

#[derive(Debug)]
struct Recording {
    tracer: SdkTracer,
    /// Has the span itself.
    context: Context,
}

impl Span {
    pub(super) fn new(tracer: SdkTracer, span: SdkSpan) -> Self {
        Self(Some(Arc::new(Recording { tracer, context: Context::new().with_span(span) })))
    }

    /// The span that the task works for, by [`Self::run`].
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Whether there is a span.
    pub const fn is_recording(&self) -> bool {
        self.0.is_some()
    }

    /// A span within this one.
    #[must_use = "a span ends when it is dropped"]
    pub fn child(&self, name: &'static str) -> Self {
        self.within(|| SpanBuilder::from_name(name))
    }

    /// The same, which began at `began`.
    #[must_use = "a span ends when it is dropped"]
    pub fn child_since(&self, name: &'static str, began: SystemTime) -> Self {
        self.within(|| SpanBuilder::from_name(name).with_start_time(began))
    }

    /// A span within this one, of a request to another service.
    #[must_use = "a span ends when it is dropped"]
    pub fn client(&self, name: &'static str, attributes: Vec<KeyValue>) -> Self {
        self.within(|| SpanBuilder::from_name(name).with_kind(SpanKind::Client).with_attributes(attributes))
    }

    fn within(&self, builder: impl FnOnce() -> SpanBuilder) -> Self {
        let Some(Recording { tracer, context }) = self.0.as_deref() else { return Self::default() };
        Self::new(tracer.clone(), tracer.build_with_context(builder(), context))
    }

    /// Adds attributes. They are made only if there is a span.
    pub fn set<A: IntoIterator<Item = KeyValue>>(&self, attributes: impl FnOnce() -> A) {
        if let Some(recording) = &self.0 {
            recording.context.span().set_attributes(attributes());
        }
    }

    /// Marks the span as failed.
    pub fn fail(&self) {
        if let Some(recording) = &self.0 {
            recording.context.span().set_status(Status::error(""));
        }
    }

    /// The id of its trace, in hexadecimal digits.
    pub fn trace_id(&self) -> Option<String> {
        Some(self.0.as_ref()?.context.span().span_context().trace_id().to_string())
    }

    /// The value of `traceparent` for what another process does within this span.
    pub fn traceparent(&self) -> Option<String> {
        let recording = self.0.as_ref()?;
        let span = recording.context.span();
        let context = span.span_context();
        Some(format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8()))
    }

    /// Runs `work` for this span, which ends with it.
    pub fn run<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        if self.is_recording() { Either::Right(CURRENT.scope(self, work)) } else { Either::Left(work) }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TracerProvider as _};
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanProcessor};

    use super::super::parent;
    use super::*;

    /// Keeps the spans that end.
    #[derive(Debug, Clone, Default)]
    struct Ended(Arc<std::sync::Mutex<Vec<SpanData>>>);

    impl SpanProcessor for Ended {
        fn on_start(&self, _: &mut SdkSpan, _: &Context) {}

        fn on_end(&self, span: SpanData) {
            self.0.lock().unwrap().push(span);
        }

        fn force_flush(&self) -> opentelemetry_sdk::error::OTelSdkResult {
            Ok(())
        }

        fn shutdown_with_timeout(&self, _: std::time::Duration) -> opentelemetry_sdk::error::OTelSdkResult {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_span_ends_with_its_last_copy_and_names_its_parent() {
        let ended = Ended::default();
        let provider = SdkTracerProvider::builder().with_span_processor(ended.clone()).build();
        let tracer = provider.tracer("test");
        let root = Span::new(tracer.clone(), tracer.build(SpanBuilder::from_name("root")));
        let copy = root.clone();
        let traceparent = root.child("work").run(async { Span::current().traceparent() }).await.unwrap();
        assert!(Span::current().traceparent().is_none());
        drop(root);
        let names = |ended: &Ended| {
            ended.0.lock().unwrap().iter().map(|span| span.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&ended), ["work"]);
        copy.set(|| [KeyValue::new("key", "value")]);
        drop(copy);
        assert_eq!(names(&ended), ["work", "root"]);
        let spans = ended.0.lock().unwrap().clone();
        let [work, root] = &spans[..] else { panic!("{spans:?}") };
        let asked_within = parent::read(&traceparent).unwrap();
        assert_eq!(
            (asked_within.trace_id(), asked_within.span_id()),
            (root.span_context.trace_id(), work.span_context.span_id())
        );
        assert_eq!(
            (work.parent_span_id, root.parent_span_id),
            (root.span_context.span_id(), SpanId::INVALID)
        );
        assert_eq!(root.attributes, [KeyValue::new("key", "value")]);
    }
}
