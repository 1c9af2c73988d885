//! Wake-up notifications: after a commit a gateway publishes the head's position on core NATS, so that readers need not
//! wait for their next poll. Invariant: a lost notification costs a reader at most its polling interval.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The core-NATS subject of the notifications.
const SUBJECT: &str = "farthing.head";

/// The shortest time between two notifications of one process.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);

/// The pause before a lost subscription is opened again.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);

/// Publishes each new value of `head`, at most one per [`PUBLISH_INTERVAL`]; ends with `stop`.
pub(super) async fn publish(nats_url: String, mut head: watch::Receiver<i64>, stop: CancellationToken) {
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let Ok(nats) = options.connect(nats_url).await else { return };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = head.changed() => if changed.is_err() { return },
        }
        let position = head.borrow_and_update().to_string();
        if nats.connection_state() == async_nats::connection::State::Connected {
            // On failure readers fall back to polling.
            let _ = nats.publish(SUBJECT, position.into()).await;
        }
        tokio::time::sleep(PUBLISH_INTERVAL).await;
    }
}

/// Sends every position received to `heads`. The client reconnects to NATS on its own.
pub(super) async fn listen(nats_url: String, heads: watch::Sender<i64>) {
    loop {
        let options = async_nats::ConnectOptions::new().name("farthing tail").retry_on_initial_connect();
        if let Ok(client) = options.connect(&nats_url).await
            && let Ok(mut messages) = client.subscribe(SUBJECT).await
        {
            while let Some(message) = messages.next().await {
                let head = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
                if let Some(head) = head {
                    heads.send_replace(head);
                }
            }
        }
        tokio::time::sleep(RESUBSCRIBE_DELAY).await;
    }
}
