//! One gateway over a store without faults, which leads all the time.

use std::sync::Arc;
use std::time::Duration;

use farthing_core::ids::SecretKeyId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::connection::{GatewayStore, Link};
use super::database::Database;
use super::merchant::registration;
use crate::appender::{Appender, Lease, QueueLimits};

/// The lease of the gateway.
const LEASE: Duration = Duration::from_hours(24);

/// An id of a secret key.
pub(super) fn id(number: u128) -> SecretKeyId {
    SecretKeyId::new(Ulid::from_parts(3, number))
}

/// Resolves once everything that was started is queued or waits for something, in simulated time.
pub(super) async fn queued() {
    sleep(Duration::from_millis(100)).await;
}

/// Runs `test` in simulated time with the appender of a gateway that leads and has a registered merchant. It can end the
/// lease and give it back. Then the gateway stops.
pub(super) fn with_leader<T: Future<Output = ()>>(
    limits: QueueLimits,
    test: impl FnOnce(Database, Appender, watch::Sender<Lease>) -> T,
) -> Database {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let database = Database::new(1, fastrand::Rng::with_seed(1));
        let (stop, gateway) = (CancellationToken::new(), "gateway".to_owned());
        database.leases().give(database.partition(), &gateway);
        let (lease, seen) = watch::channel(held());
        let store = GatewayStore { database: database.clone(), gateway, link: Link::default() };
        let (appender, task) = Appender::over(store, "gateway", (limits, Arc::default()), seen, stop.clone());
        let task = tokio::spawn(task);
        queued().await;
        appender.submit(None, registration()).await.expect("nothing fails yet");
        test(database.clone(), appender, lease).await;
        stop.cancel();
        task.await.unwrap();
        database.notes.check();
        database
    })
}

/// The lease as the gateway knows it while it leads.
pub(super) fn held() -> Lease {
    Lease::Held { until: Instant::now() + LEASE / 2 }
}
