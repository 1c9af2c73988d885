//! The metrics of webhook deliveries.

use std::sync::{Arc, Mutex, PoisonError};

use farthing_telemetry::{Counter, Metrics};

use super::queue::Backlog;

/// The metrics of a dispatcher.
#[derive(Debug)]
pub struct WebhookMetrics {
    /// Attempts that the receiver accepted.
    pub(super) delivered: Counter,
    /// Attempts that failed and are made again.
    pub(super) failed: Counter,
    /// Last attempts, which failed.
    pub(super) given_up: Counter,
    /// What waits for this gateway, when it looked last, if it could.
    backlog: Arc<Mutex<Option<Backlog>>>,
}

impl WebhookMetrics {
    /// Adds them to `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let [delivered, failed, given_up] = metrics.counters(
            "farthing_webhook_attempts_total",
            "Attempts to deliver a webhook's event",
            "outcome",
            ["delivered", "failed", "given_up"],
        );
        let backlog = Arc::new(Mutex::new(Some(Backlog::default())));
        let read = |of: fn(&Backlog) -> f64| {
            let backlog = Arc::clone(&backlog);
            move || backlog.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(of)
        };
        metrics.gauge_from(
            "farthing_webhook_queues",
            "Queues with deliveries that wait for this gateway; of a partition, at most 1000 are counted",
            read(|backlog| f64::from(backlog.queues)),
        );
        metrics.gauge_from(
            "farthing_webhook_overdue_seconds",
            "Time for which the next delivery of one of these queues has been due; of all, the longest",
            read(|backlog| backlog.overdue_seconds),
        );
        Self { delivered, failed, given_up, backlog }
    }

    /// Takes note of what waits; `None` if that could not be counted.
    pub(super) fn waits(&self, backlog: Option<Backlog>) {
        *self.backlog.lock().unwrap_or_else(PoisonError::into_inner) = backlog;
    }
}
