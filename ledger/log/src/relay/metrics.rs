//! The metrics of the relay.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_core::partition::Partition;
use farthing_telemetry::{Counter, Metrics};

use crate::positions::Positions;
use crate::tail::SeenHeads;

/// The metrics of a relay.
#[derive(Debug)]
pub struct RelayMetrics {
    /// The position up to which each partition's stream has acknowledged the log; empty while another relay publishes.
    published: Arc<Mutex<Positions>>,
    pub(super) restarts: Counter,
}

impl RelayMetrics {
    /// Adds them to `metrics`. A lag is that behind `heads`.
    pub fn new(metrics: &Metrics, heads: Arc<SeenHeads>) -> Self {
        let published = Arc::new(Mutex::new(Positions::default()));
        let reached = Arc::clone(&published);
        metrics.gauges_from(
            "farthing_relay_lag_events",
            "Events of a partition that its stream has not acknowledged, at the relay that publishes",
            "partition",
            move || {
                let heads = heads.newest().unwrap_or_default();
                let reached = lock(&reached).clone();
                let lags = reached.iter().map(|(partition, published)| {
                    let lag = (heads.get(partition) - published).max(0);
                    (partition.number().to_string(), f64::from(i32::try_from(lag).unwrap_or(i32::MAX)))
                });
                lags.collect()
            },
        );
        let restarts =
            metrics.counter("farthing_relay_restarts_total", "Restarts of the relay after a failure");
        Self { published, restarts }
    }

    /// Takes note of the position up to which the stream of `partition` has the log.
    pub(super) fn published(&self, partition: Partition, position: i64) {
        lock(&self.published).set(partition, position);
    }

    /// Another relay publishes. After a failure of this one, what it has published is kept, and lags more and more.
    pub(super) fn stands_by(&self) {
        *lock(&self.published) = Positions::default();
    }
}

fn lock(published: &Mutex<Positions>) -> MutexGuard<'_, Positions> {
    published.lock().unwrap_or_else(PoisonError::into_inner)
}
