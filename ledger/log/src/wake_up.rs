//! Wake-up notifications: after a commit a gateway publishes the position of the partition's head on core NATS, so that
//! readers need not wait for their next poll. Invariant: a lost notification costs a reader at most its polling
//! interval.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Client, Event};
use farthing_core::partition::Partition;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::nats::NatsConfig;

/// The shortest time between two notifications of one process about a partition.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(10);

/// The pause before a lost subscription is opened again.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(1);

/// The first and the longest wait after a connection that was refused.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The most reasons that are logged from one connection to the next. A server names the subject that it refuses.
const MOST_REASONS: usize = 8;

/// Publishes each new value of the partitions' heads over one connection, for each at most one per
/// [`PUBLISH_INTERVAL`]; ends with `stop`.
pub(super) async fn publish(
    nats: NatsConfig,
    heads: Vec<(Partition, watch::Receiver<i64>)>,
    stop: CancellationToken,
) {
    let publishing = async {
        let client = connected(&nats, "farthing gateway").await;
        let publishing = heads
            .into_iter()
            .map(|(partition, head)| publish_head(&client, nats.names.wake_up(partition), head));
        join_all(publishing).await;
    };
    let _ = stop.run_until_cancelled(publishing).await;
}

/// Publishes each new value of `head` on `subject`, until its sender is dropped.
async fn publish_head(nats: &Client, subject: String, mut head: watch::Receiver<i64>) {
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
        let client = connected(&nats, "farthing tail").await;
        if let Ok(mut messages) = client.subscribe(nats.names.wake_ups()).await {
            while messages.next().await.is_some() {
                notifications.send_replace(());
            }
        }
        tokio::time::sleep(RESUBSCRIBE_DELAY).await;
    }
}

/// Connects as `name`, as often as it takes, and says why it cannot. The client's own way of waiting for a server says
/// nothing of why it is refused. Later the client reconnects on its own.
async fn connected(nats: &NatsConfig, name: &str) -> Client {
    let reasons = Reasons::default();
    let mut backoff = Backoff::new(BACKOFF.0, BACKOFF.1);
    loop {
        let seen = reasons.clone();
        let watch = move |event: Event| {
            seen.see(&event);
            std::future::ready(())
        };
        let connecting = nats.connect(|options| options.name(name).event_callback(watch));
        match connecting.await {
            Ok(client) => return client,
            Err(error) => reasons.report(&error.to_string()),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// Why notifications do not pass, without digits. Each reason is logged once, until NATS takes the connection. Some hold the
/// time, as that of an expired certificate does.
#[derive(Debug, Clone, Default)]
struct Reasons(Arc<Mutex<BTreeSet<String>>>);

impl Reasons {
    /// Looks at what happened to a connection that was open once.
    fn see(&self, event: &Event) {
        match event {
            Event::Connected => self.0.lock().unwrap_or_else(PoisonError::into_inner).clear(),
            Event::ServerError(error) => self.report(&error.to_string()),
            Event::ClientError(error) => self.report(&error.to_string()),
            Event::Disconnected
            | Event::LameDuckMode
            | Event::Draining
            | Event::Closed
            | Event::SlowConsumer(_) => {}
        }
    }

    fn report(&self, error: &str) {
        if self.is_new(error) {
            tracing::warn!(
                event = "wake_up.unavailable",
                error,
                "NATS passes no wake-up notifications of this process; readers poll"
            );
        }
    }

    /// Whether the reason is to be logged. From then on it is not new.
    fn is_new(&self, error: &str) -> bool {
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = error.replace(|c: char| c.is_ascii_digit(), "");
        reasons.len() < MOST_REASONS && reasons.insert(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_new_once_until_a_connection_whatever_the_time_in_it() {
        let reasons = Reasons::default();
        let expired = |seconds: u64| {
            format!(
                "certificate expired: verification time {seconds} (UNIX), but certificate is not valid after 1738367999 ({} seconds ago)",
                seconds - 1_738_367_999
            )
        };
        let is_new = |seconds| reasons.is_new(&expired(seconds));
        assert_eq!([1_795_764_236, 1_795_764_237, 1_800_000_000].map(is_new), [true, false, false]);
        assert!(reasons.is_new("authorization violation"), "another reason");
        reasons.see(&Event::Connected);
        assert!(is_new(1_800_000_001));
        let many = (b'a'..=b'z').filter(|letter| reasons.is_new(&char::from(*letter).to_string())).count();
        assert_eq!(many, MOST_REASONS - 1, "a server cannot fill the log");
    }
}
