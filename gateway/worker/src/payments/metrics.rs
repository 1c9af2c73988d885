//! The metrics of payments.

use farthing_core::command::Paid;
use farthing_telemetry::{Counter, Metrics};

/// The metrics of payments.
#[derive(Debug)]
pub struct PaymentMetrics {
    succeeded: Counter,
    declined: Counter,
    voided: Counter,
    /// Attempts that did not end a payment.
    pub(super) failed: Counter,
}

impl PaymentMetrics {
    /// Adds them to `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let [succeeded, declined, voided, failed] = metrics.counters(
            "farthing_payments_total",
            "Payments that this gateway ended in the log, and attempts that failed and are made again",
            "outcome",
            ["succeeded", "declined", "voided", "failed"],
        );
        Self { succeeded, declined, voided, failed }
    }

    /// Counts a payment that has ended.
    pub(super) fn ended(&self, paid: &Paid) {
        let counter = match paid {
            Paid::Accepted(_) => &self.succeeded,
            Paid::Declined(_) => &self.declined,
            Paid::Voided(_) => &self.voided,
        };
        counter.inc();
    }
}
