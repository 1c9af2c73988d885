//! Wake-up notifications: after a commit a gateway publishes the position of the partition's head on core NATS, so that
//! readers need not wait for their next poll. Invariant: a lost notification costs a reader at most its polling
//! interval.

use std::time::Duration;

use farthing_core::partition::Partition;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::connect;

/// The core-NATS subjects of the notifications: one per partition, named after its number.
const SUBJECTS: &str = "farthing.head.*";

/// The shortest time between two notifications of one process about a partition.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);

/// The pause before a lost subscription is opened again.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);

/// Publishes each new value of the partitions' heads over one connection, for each at most one per
/// [`PUBLISH_INTERVAL`]; ends with `stop`.
pub(super) async fn publish(
    nats_url: String,
    heads: Vec<(Partition, watch::Receiver<i64>)>,
    stop: CancellationToken,
) {
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let Ok(nats) = options.connect(connect::nats_servers(&nats_url)).await else { return };
    let publishing = heads.into_iter().map(|(partition, head)| publish_head(&nats, partition, head));
    let _ = stop.run_until_cancelled(join_all(publishing)).await;
}

/// Publishes each new value of `head`, until its sender is dropped.
async fn publish_head(nats: &async_nats::Client, partition: Partition, mut head: watch::Receiver<i64>) {
    let subject = SUBJECTS.replace('*', &partition.to_string());
    while head.changed().await.is_ok() {
        let position = head.borrow_and_update().to_string();
        if nats.connection_state() == async_nats::connection::State::Connected {
            // On failure readers fall back to polling.
            let _ = nats.publish(subject.clone(), position.into()).await;
        }
        tokio::time::sleep(PUBLISH_INTERVAL).await;
    }
}

/// Signals every notification to `notifications`, whatever its partition: a reader asks for all heads at once. The
/// client reconnects to NATS on its own.
pub(super) async fn listen(nats_url: String, notifications: watch::Sender<()>) {
    loop {
        let options = async_nats::ConnectOptions::new().name("farthing tail").retry_on_initial_connect();
        if let Ok(client) = options.connect(connect::nats_servers(&nats_url)).await
            && let Ok(mut messages) = client.subscribe(SUBJECTS).await
        {
            while messages.next().await.is_some() {
                notifications.send_replace(());
            }
        }
        tokio::time::sleep(RESUBSCRIBE_DELAY).await;
    }
}
