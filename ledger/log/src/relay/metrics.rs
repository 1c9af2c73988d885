//! The metrics of the relay.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farthing_core::partition::Partition;
use farthing_telemetry::{Counter, Metrics};

use crate::positions::Positions;
use crate::tail::SeenHeads;

/// The metrics of a relay.
#[derive(Debug)]
pub struct RelayMetrics {
    /// The position published last in each partition; empty while another relay publishes.
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
            "Events of a partition that are not published yet, at the relay that publishes",
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

    /// Takes note of the position published last in `partition`.
    pub(super) fn published(&self, partition: Partition, position: i64) {
        lock(&self.published).set(partition, position);
    }

    /// The relay publishes nothing any more.
    pub(super) fn stopped(&self) {
        *lock(&self.published) = Positions::default();
    }
}

fn lock(published: &Mutex<Positions>) -> MutexGuard<'_, Positions> {
    published.lock().unwrap_or_else(PoisonError::into_inner)
}
