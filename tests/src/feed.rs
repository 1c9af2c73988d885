//! The public feed, checked against the log message by message.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, consumer, stream::Stream};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt as _;

use crate::instance::{Instance, nats};
use crate::log::{Logged, next_hash};
use crate::wait::{eventually_ok, within};

/// The name of the stream of a partition.
pub fn name(instance: &Instance, partition: i16) -> String {
    stream_name(&instance.ready().nats_prefix, partition)
}

fn stream_name(prefix: &str, partition: i16) -> String {
    let name = format!("LEDGER-{partition}");
    if prefix.is_empty() { name } else { format!("{prefix}-{name}") }
}

/// The subject of every message of a partition.
pub fn subject(instance: &Instance, partition: i16) -> String {
    prefixed_subject(instance, &format!("ledger.{partition}"))
}

/// The subject of the wake-up notifications of a partition.
pub fn wake_up(instance: &Instance, partition: i16) -> String {
    prefixed_subject(instance, &format!("farthing.head.{partition}"))
}

fn prefixed_subject(instance: &Instance, subject: &str) -> String {
    let prefix = instance.ready().nats_prefix;
    if prefix.is_empty() { subject.to_owned() } else { format!("{prefix}.{subject}") }
}

/// The timeout for the feed to hold the whole log.
const FEED_TIMEOUT: Duration = Duration::from_mins(1);

/// A record batch in the headers.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    count: usize,
    recorded_at_us: i64,
    writer: String,
}

/// What the headers of a message say, as a consumer reads them.
pub struct Headers {
    /// The partition.
    pub partition: i16,
    /// The number of the message.
    pub number: u64,
    /// The position of the first event.
    pub first_position: i64,
    /// The hash of each event.
    pub hashes: Vec<Vec<u8>>,
    batches: Vec<Batch>,
}

impl Headers {
    /// Reads the headers of the relay.
    pub fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).unwrap_or_else(|| panic!("header {name}")).as_str();
        let number = |name| text(name).parse::<i64>().expect("a number");
        let hashes = BASE64_STANDARD.decode(text("farthing-hashes")).expect("base64");
        let hashes: Vec<_> = hashes.chunks(32).map(<[u8]>::to_vec).collect();
        let batches: Vec<Batch> = serde_json::from_str(text("farthing-batches")).expect("JSON");
        let first_position = number("farthing-position");
        assert_eq!(number("farthing-count"), i64::try_from(hashes.len()).unwrap());
        assert_eq!(batches.iter().map(|batch| batch.count).sum::<usize>(), hashes.len());
        assert!(batches.iter().all(|batch| batch.count > 0));
        let (partition, position) = text("Nats-Msg-Id").split_once('-').expect("a partition and a position");
        assert_eq!(position, first_position.to_string());
        let partition = partition.parse().expect("a number");
        let number = number("farthing-message").try_into().expect("a number from 1");
        Self { partition, number, first_position, hashes, batches }
    }

    /// The position of the last event.
    pub fn last_position(&self) -> i64 {
        self.first_position + i64::try_from(self.hashes.len()).unwrap() - 1
    }
}

/// The stream of a partition, if it exists.
pub async fn stream_of(instance: &Instance, partition: i16) -> Option<Stream> {
    let ready = instance.try_ready()?;
    let client = tokio::time::timeout(FEED_TIMEOUT, nats(&ready.nats_url));
    let name = stream_name(&ready.nats_prefix, partition);
    jetstream::new(client.await.ok()?.ok()?).get_stream(name).await.ok()
}

/// The position of the last event in the stream, if there is one.
pub async fn end(stream: &Stream) -> Option<i64> {
    let subject = stream.cached_info().config.subjects.first()?;
    let last = stream.get_last_raw_message_by_subject(subject).await.ok()?;
    // A foreign message has none.
    last.headers.get("farthing-hashes")?;
    Some(Headers::read(&last.headers).last_position())
}

/// What the feed has of `events`, which are of one partition: a line for each, once it has come that far.
pub async fn lines_of(instance: &Instance, events: &[Logged]) -> Vec<String> {
    let (first, last) = (events.first().expect("there are events"), events.last().expect("there are events"));
    let stream = within(FEED_TIMEOUT, "the feed has the events", async || {
        let stream = stream_of(instance, first.partition).await?;
        (end(&stream).await? >= last.position).then_some(stream)
    })
    .await;
    let mut lines = BTreeMap::new();
    let mut number = stream.get_info().await.expect("the stream can be read").state.last_sequence;
    loop {
        let message = stream.get_raw_message(number).await.expect("a message of the feed");
        let headers = Headers::read(&message.headers);
        let body = std::str::from_utf8(&message.payload).expect("UTF-8");
        lines.extend((headers.first_position..).zip(body.split('\n').map(str::to_owned)));
        if headers.first_position <= first.position {
            break;
        }
        number -= 1;
    }
    events.iter().map(|event| lines.remove(&event.position).expect("the feed has no gap")).collect()
}

/// Waits until the feed is as long as the log. Asserts that it holds exactly `events`, all of a log without
/// writers: those of each partition in order, each once, with their headers.
pub async fn check(instance: &Instance, events: &[Logged]) {
    for events in events.chunk_by(|one, next| one.partition == next.partition) {
        let (first, last) =
            (events.first().expect("there are events"), events.last().expect("there are events"));
        let stream = eventually_ok("the feed is as long as the log", async || {
            let stream = stream_of(instance, first.partition).await.ok_or("there is no stream")?;
            let state = stream.get_info().await.map_err(|error| error.to_string())?.state;
            let begins = stream.get_raw_message(state.first_sequence).await;
            let begins = begins.map_err(|error| format!("{state:?}: {error}"))?;
            let own = Headers::read(&begins.headers).hashes.first() == Some(&first.hash);
            let end = end(&stream).await;
            let is_whole = own && end == Some(last.position);
            is_whole.then_some(stream).ok_or_else(|| {
                format!("it ends at {end:?}, the log at {}; its beginning is the log's: {own}", last.position)
            })
        })
        .await;
        check_beginning(instance, &stream, events).await;
    }
}

/// Asserts that a partition's feed begins with `events`, its beginning in the log. The hash chain is verified from the
/// feed alone.
pub async fn check_beginning(instance: &Instance, stream: &Stream, events: &[Logged]) {
    // A cluster makes no consumer, and does not answer, while its servers choose the one that assigns consumers.
    let mut messages = eventually_ok("the stream can be read", async || {
        let config = consumer::pull::OrderedConfig::default();
        let consumer = stream.create_consumer(config).await.map_err(|error| error.to_string())?;
        consumer.messages().await.map_err(|error| error.to_string())
    })
    .await;
    let (mut position, mut previous) = (0, vec![0; 32]);
    let mut expected = events.iter();
    for number in 1.. {
        let next = tokio::time::timeout(FEED_TIMEOUT, messages.next()).await.expect("the feed goes on");
        let message = next.expect("the feed goes on").expect("a message");
        let headers = Headers::read(message.headers.as_ref().expect("headers"));
        assert_eq!(message.subject.as_str(), subject(instance, headers.partition));
        assert_eq!((headers.number, headers.first_position), (number, position + 1));
        let body = std::str::from_utf8(&message.payload).expect("UTF-8");
        let lines: Vec<_> = body.split('\n').collect();
        assert_eq!(lines.len(), headers.hashes.len());
        let batches = headers.batches.iter().flat_map(|batch| std::iter::repeat_n(batch, batch.count));
        for ((line, hash), batch) in lines.iter().zip(&headers.hashes).zip(batches) {
            position += 1;
            previous = next_hash(&previous, position, batch.recorded_at_us, &batch.writer, line);
            assert_eq!(&previous, hash, "the hash of {position}");
            let Some(event) = expected.next() else { continue };
            assert_eq!((event.position, event.record.as_str()), (position, *line), "the exact line");
            assert_eq!(event.partition, headers.partition);
            assert_eq!(event.hash, previous, "{}", event.key);
        }
        if position >= events.last().map_or(0, |event| event.position) {
            return;
        }
    }
}
