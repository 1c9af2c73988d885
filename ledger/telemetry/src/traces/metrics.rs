//! The metrics of traces.

use prometheus_client::metrics::counter::Counter;

use crate::Metrics;

/// The metrics of traces. They are shown whether traces are on or not.
#[derive(Debug, Clone)]
pub struct TraceMetrics {
    /// Spans that the collector has taken.
    pub(super) exported: Counter,
    /// Spans that found the queue full.
    pub(super) queue_full: Counter,
    /// Spans that the collector did not take.
    pub(super) refused: Counter,
    /// Calls that were to be traced, and were not.
    pub(super) over_limit: Counter,
}

impl TraceMetrics {
    /// Adds them to `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let [queue_full, refused] = metrics.counters(
            "farthing_spans_dropped_total",
            "Spans that were dropped, by the reason: the queue was full, or the collector did not take them",
            "reason",
            ["queue", "collector"],
        );
        Self {
            exported: metrics
                .counter("farthing_spans_exported_total", "Spans that were sent to the collector"),
            queue_full,
            refused,
            over_limit: metrics.counter(
                "farthing_traces_over_limit_total",
                "Calls that were to be traced and were not, because too many traces began in that second",
            ),
        }
    }
}
