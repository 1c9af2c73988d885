//! Wake-up notifications: after a commit a gateway publishes the position of the partition's head on core NATS, so that
//! readers need not wait for their next poll. Invariant: a lost notification costs a reader at most its polling
//! interval.

use std::time::Duration;

use farthing_core::partition::Partition;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::nats::NatsConfig;

/// The shortest time between two notifications of one process about a partition.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);

/// The pause before a lost subscription is opened again.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);

/// Publishes each new value of the partitions' heads over one connection, for each at most one per
/// [`PUBLISH_INTERVAL`]; ends with `stop`.
pub(super) async fn publish(
    nats: NatsConfig,
    heads: Vec<(Partition, watch::Receiver<i64>)>,
    stop: CancellationToken,
) {
    let client = match nats.connect(async_nats::ConnectOptions::retry_on_initial_connect).await {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(event = "wake_up.unavailable", %error, "no wake-up notifications are published");
            return;
        }
    };
    let publishing =
        heads.into_iter().map(|(partition, head)| publish_head(&client, nats.names.wake_up(partition), head));
    let _ = stop.run_until_cancelled(join_all(publishing)).await;
}

/// Publishes each new value of `head` on `subject`, until its sender is dropped.
async fn publish_head(nats: &async_nats::Client, subject: String, mut head: watch::Receiver<i64>) {
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
pub(super) async fn listen(nats: NatsConfig, notifications: watch::Sender<()>) {
    loop {
        let connecting = nats.connect(|options| options.name("farthing tail").retry_on_initial_connect());
        if let Ok(client) = connecting.await
            && let Ok(mut messages) = client.subscribe(nats.names.wake_ups()).await
        {
            while messages.next().await.is_some() {
                notifications.send_replace(());
            }
        }
        tokio::time::sleep(RESUBSCRIBE_DELAY).await;
    }
}
