//! One appender over a store without faults.

use std::time::Duration;

use farthing_core::ids::SecretKeyId;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::client::register;
use super::database::Database;
use crate::appender::{Appender, QueueLimits};

/// An id of a secret key.
pub(super) fn id(number: u128) -> SecretKeyId {
    SecretKeyId::new(Ulid::from_parts(3, number))
}

/// Resolves once everything that was started is queued or waits for something, in simulated time.
pub(super) async fn queued() {
    sleep(Duration::from_millis(100)).await;
}

/// Runs `test` in simulated time with an appender that has a registered merchant.
pub(super) fn with_appender<T: Future<Output = ()>>(
    limits: QueueLimits,
    test: impl FnOnce(Database, Appender) -> T,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let database = Database::new(fastrand::Rng::with_seed(1));
        let stop = CancellationToken::new();
        let (appender, task) = Appender::over(database.clone(), "writer", limits, stop.clone());
        let task = tokio::spawn(task);
        register(&appender).await;
        test(database, appender).await;
        stop.cancel();
        task.await.unwrap();
    });
}
