//! The public feed, checked against the log message by message.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::stream::Stream;
use farthing_core::secret::hex;
use futures_util::StreamExt as _;

use crate::instance::Instance;
use crate::log::Logged;
use crate::wait::within;

/// The timeout for the feed to hold the whole log.
const FEED_TIMEOUT: Duration = Duration::from_mins(1);

/// The stream, if it exists.
pub async fn stream(instance: &Instance) -> Option<Stream> {
    let client = tokio::time::timeout(FEED_TIMEOUT, async_nats::connect(instance.try_ready()?.nats_url));
    jetstream::new(client.await.ok()?.ok()?).get_stream("LEDGER").await.ok()
}

/// Waits until the feed is as long as the log. Asserts that it holds exactly `events`, all of a log without writers: in order,
/// each once, with its headers.
pub async fn check(instance: &Instance, events: &[Logged]) {
    let (first, count) = (events.first().expect("there are events"), events.len() as u64);
    let stream = within(FEED_TIMEOUT, "the feed is as long as the log", async || {
        let stream = stream(instance).await?;
        let state = stream.get_info().await.ok()?.state;
        let begins = stream.get_raw_message(state.first_sequence).await.ok()?;
        let own = begins.headers.get("Nats-Msg-Id").is_some_and(|key| key.as_str() == first.key);
        (state.messages == count && own).then_some(stream)
    })
    .await;
    let config = jetstream::consumer::pull::OrderedConfig::default();
    let consumer = stream.create_consumer(config).await.expect("the stream can be read");
    let mut messages = consumer.messages().await.expect("the stream can be read");
    for event in events {
        let next = tokio::time::timeout(FEED_TIMEOUT, messages.next()).await.expect("the feed goes on");
        let message = next.expect("the feed goes on").expect("a message");
        let headers = message.headers.as_ref().expect("headers");
        let header = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
        assert_eq!(header("farthing-position"), Some(event.position.to_string()));
        assert_eq!(header("Nats-Msg-Id").as_deref(), Some(event.key.as_str()));
        assert_eq!(header("farthing-hash"), Some(hex(&event.hash)), "{}", event.key);
        assert_eq!(message.subject.as_str(), format!("ledger.{}.{}", event.merchant_id, event.kind));
        assert_eq!(message.payload.as_ref(), event.text.as_bytes(), "the exact bytes of the body");
    }
}
