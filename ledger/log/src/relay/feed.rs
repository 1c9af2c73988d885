//! The open end of a partition's feed: publishes messages and checks their acknowledgements.
//!
//! Each message names the sequence that it must follow (`Nats-Expected-Last-Sequence`), so when one is lost
//! the server refuses all messages after it, and the next acknowledgement reports that. Unless another relay has published
//! in its place: then those after it may be stored behind a gap, which the next relay finds ([`last_published`]).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, RawMessageErrorKind, Stream};
use async_nats::{Client, PublishErrorKind, Subscriber, jetstream};
use farthing_core::partition::Partition;
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::message::{self, Message, Published};
use super::stream::{self, Extent, LOOK_BACK};
use super::{Error, nats};
use crate::nats_names::NatsNames;
use crate::reader;
use crate::tail::{Batches, Follower};

/// The events that are packed into messages at once, about. The tail reads a busy log every 20 ms, so they
/// are gathered already and no message waits for more.
const READ_EVENTS: usize = 2_048;
/// The most acknowledgements awaited at once: up to 4 MB of messages.
pub(super) const MAX_AWAITED: usize = 8;
/// How long an acknowledgement may take.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two checks of the stream. Without them a stream that was deleted, cut or written into by another
/// client would be noticed only at the next event, or never.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The open end of the stream.
pub(super) struct Feed {
    client: Client,
    partition: Partition,
    subject: String,
    inbox: String,
    acks: Subscriber,
    /// The position published last.
    position: i64,
    /// The position up to which the stream has acknowledged.
    acknowledged: i64,
    /// The sequence of the position published last.
    sequence: u64,
    /// The messages to publish next.
    unsent: VecDeque<Message>,
    awaited: VecDeque<AwaitedAck>,
    stream: Stream,
    /// The sequence of the first message.
    first: u64,
    next_check: Instant,
    /// How often the client had connected when the stream was opened.
    connects: u64,
}

/// An acknowledgement that is due.
struct AwaitedAck {
    sequence: u64,
    /// The last position of the message.
    position: i64,
    deadline: Instant,
}

/// The server's reply to a message that asked for an acknowledgement.
#[derive(Deserialize)]
struct Ack {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<serde_json::Value>,
}

impl Feed {
    /// Opens the stream of `partition` and finds its end, which is compared with the log in `db`, and which the next events of
    /// `follower` must follow; creates the stream if it is gone.
    pub(super) async fn resume(
        client: Client,
        (db, follower): (&tokio_postgres::Client, &Follower),
        names: &NatsNames,
        partition: Partition,
        replicas: usize,
    ) -> Result<Self, Error> {
        let context = jetstream::new(client.clone());
        let wanted = stream::config(names, partition, replicas);
        let stream = context.get_or_create_stream(wanted).await?;
        // The client connects behind its first request. Before the reply the count is still 0.
        let connects = client.statistics().connects.load(Ordering::Relaxed);
        let info = stream.get_info().await?;
        set_replicas(&context, info.config, replicas).await;
        let extent = Extent::from(&info.state);
        let position = if extent.messages == 0 {
            0
        } else {
            let Some(last) = last_published(&stream, extent).await? else {
                // The stream is only a copy of the log, so it can be replaced.
                tracing::error!(
                    event = "relay.stream_damaged",
                    %partition,
                    state = ?info.state,
                    "the feed has lost messages or holds foreign ones; it is deleted and published again"
                );
                context.delete_stream(names.stream(partition)).await?;
                return Err(Error::Changed("the damaged feed was deleted"));
            };
            confirm(db, partition, &last).await?;
            let position = last.last_position;
            follower.follows(partition, position, last.last_hash);
            position
        };
        if position == 0 {
            tracing::info!(
                event = "relay.publishing_from_start",
                %partition,
                "the feed is published from the first event on"
            );
        }
        let inbox = client.new_inbox();
        let acks = client.subscribe(inbox.clone()).await.map_err(nats)?;
        Ok(Self {
            client,
            partition,
            subject: names.subject(partition),
            inbox,
            acks,
            position,
            acknowledged: position,
            sequence: extent.last,
            unsent: VecDeque::new(),
            awaited: VecDeque::with_capacity(MAX_AWAITED),
            stream,
            first: extent.first_message(),
            next_check: Instant::now() + CHECK_INTERVAL,
            connects,
        })
    }

    /// The position up to which the stream has acknowledged the log.
    pub(super) const fn acknowledged(&self) -> i64 {
        self.acknowledged
    }

    /// The position published last.
    pub(super) const fn position(&self) -> i64 {
        self.position
    }

    /// Takes the next events of `news`, publishes a message, receives an acknowledgement or checks the stream, whichever is
    /// due first.
    pub(super) async fn step(&mut self, news: &mut mpsc::Receiver<Batches>) -> Result<(), Error> {
        let deadline = self.awaited.front().map(|awaited| awaited.deadline);
        let ack_timeout = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let may_send = self.awaited.len() < MAX_AWAITED;
        tokio::select! {
            biased;
            message = self.acks.next() => self.acknowledge(message),
            () = ack_timeout => Err(Error::AckTimeout),
            () = tokio::time::sleep_until(self.next_check) => self.check().await,
            () = std::future::ready(()), if may_send && !self.unsent.is_empty() => self.publish().await,
            Some(batches) = news.recv(), if self.unsent.is_empty() => {
                self.unsent = message::pack(batches, self.client.max_payload());
                Ok(())
            }
        }
    }

    /// Fails unless the stream is still there, complete, and written by this relay alone.
    async fn check(&mut self) -> Result<(), Error> {
        if self.client.statistics().connects.load(Ordering::Relaxed) != self.connects {
            return Err(nats("the client has reconnected"));
        }
        let state = self.stream.get_info().await?.state;
        if !Extent::from(&state).is_intact(self.first, self.sequence, self.awaited.is_empty()) {
            return Err(Error::Changed("the stream was changed by another client"));
        }
        self.next_check = Instant::now() + CHECK_INTERVAL;
        Ok(())
    }

    fn acknowledge(&mut self, message: Option<async_nats::Message>) -> Result<(), Error> {
        let message = message.ok_or_else(|| nats("the client has ended"))?;
        let ack: Ack = serde_json::from_slice(&message.payload)
            .map_err(|_| Error::Refused(format!("status {:?}", message.status)))?;
        let awaited = self.awaited.pop_front();
        ack.check(awaited.as_ref().map(|awaited| awaited.sequence))?;
        if let Some(awaited) = awaited {
            self.acknowledged = awaited.position;
        }
        Ok(())
    }

    /// Publishes the first unsent message.
    async fn publish(&mut self) -> Result<(), Error> {
        let Some(message) = self.unsent.pop_front() else { return Ok(()) };
        let sequence = self.sequence + 1;
        let headers = message.headers(self.partition, sequence + 1 - self.first, self.sequence);
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let sent = self.client.publish_with_reply_and_headers(subject, inbox, headers, message.body());
        let position = message.first_position();
        sent.await.map_err(|error| {
            let what = format!("the message of position {position}: {error}");
            // Only this message is too large.
            if error.kind() == PublishErrorKind::MaxPayloadExceeded {
                Error::Refused(what)
            } else {
                nats(what)
            }
        })?;
        self.position = message.last_position();
        self.sequence = sequence;
        let deadline = Instant::now() + ACK_TIMEOUT;
        self.awaited.push_back(AwaitedAck { sequence, position: self.position, deadline });
        Ok(())
    }
}

/// Reads the events of a partition after `position` into `news`. It reads on while the feed checks its stream, however long a
/// read takes, and reads no further before the last ones were taken.
pub(super) async fn read(
    follower: &Follower,
    partition: Partition,
    mut position: i64,
    news: &mpsc::Sender<Batches>,
) -> Result<Infallible, Error> {
    loop {
        let place = news.reserve().await.map_err(|_| Error::Changed("the feed is not open any more"))?;
        let batches = follower.next_batches(partition, position, READ_EVENTS).await?;
        position = batches.last().map_or(position, |(batch, _)| batch.last_position());
        place.send(batches);
    }
}

impl Ack {
    /// Fails unless the server stored the message under the sequence `awaited`.
    fn check(self, awaited: Option<u64>) -> Result<(), Error> {
        if let Some(error) = self.error {
            return Err(Error::Refused(error.to_string()));
        }
        if awaited != Some(self.seq) || self.duplicate {
            return Err(Error::Refused(format!("expected sequence {awaited:?}, got {}", self.seq)));
        }
        Ok(())
    }
}

/// Changes the number of replicas of an existing stream. A stream with another number is as good a copy, so a
/// server that refuses does not stop the feed.
async fn set_replicas(context: &jetstream::Context, config: Config, replicas: usize) {
    let before = config.num_replicas;
    if before == replicas {
        return;
    }
    match context.update_stream(Config { num_replicas: replicas, ..config }).await {
        Ok(_) => {
            tracing::info!(event = "relay.replicas_changed", before, replicas, "the feed has new replicas");
        }
        Err(error) => {
            let event = "relay.replicas_refused";
            tracing::warn!(event, before, replicas, %error, "the feed keeps its number of replicas");
        }
    }
}

/// The position up to which the feed has `partition`; 0 if there is no stream, or none that is whole.
pub(super) async fn published(
    context: &jetstream::Context,
    names: &NatsNames,
    partition: Partition,
) -> Result<i64, Error> {
    let stream = match context.get_stream(names.stream(partition)).await {
        Ok(stream) => stream,
        Err(error) if is_missing(&error) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let info = stream.get_info().await?;
    let extent = Extent::from(&info.state);
    if extent.messages == 0 {
        return Ok(0);
    }
    Ok(last_published(&stream, extent).await?.map_or(0, |last| last.last_position))
}

fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Reads the last message of a stream that is not empty; `None` if the stream does not hold all messages up
/// to it.
async fn last_published(stream: &Stream, extent: Extent) -> Result<Option<Published>, Error> {
    let published = async |sequence| -> Result<Option<Published>, Error> {
        match stream.get_raw_message(sequence).await {
            Ok(message) => Ok(Published::read(&message.headers)),
            Err(error) if matches!(error.kind(), RawMessageErrorKind::NoMessageFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    let newest = (extent.first..=extent.last).rev().take(LOOK_BACK);
    let newest: Option<Vec<_>> = try_join_all(newest.map(published)).await?.into_iter().collect();
    let newest = newest.filter(|newest| extent.holds_all_up_to(newest));
    Ok(newest.and_then(|newest| newest.first().copied()))
}

/// Fails unless the last event of the stream's last message is the log's.
async fn confirm(db: &tokio_postgres::Client, partition: Partition, last: &Published) -> Result<(), Error> {
    let position = last.last_position;
    let hash = reader::hash_at(db, partition, position).await?;
    if hash.as_deref() == Some(&last.last_hash) { Ok(()) } else { Err(Error::Forked { position }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: &str, awaited: Option<u64>) -> Result<(), String> {
        let ack: Ack = serde_json::from_str(reply).unwrap();
        ack.check(awaited).map_err(|error| error.to_string())
    }

    #[test]
    fn an_acknowledgement_counts_only_for_the_sequence_awaited() {
        assert_eq!(check(r#"{"stream":"LEDGER-0","seq":7}"#, Some(7)), Ok(()));
        let refused = |detail: &str| Err(format!("the stream refused a message: {detail}"));
        assert_eq!(check(r#"{"seq":6}"#, Some(7)), refused("expected sequence Some(7), got 6"));
        assert_eq!(check(r#"{"seq":7}"#, None), refused("expected sequence None, got 7"));
        assert_eq!(
            check(r#"{"seq":7,"duplicate":true}"#, Some(7)),
            refused("expected sequence Some(7), got 7")
        );
        assert_eq!(check(r#"{"error":{"code":400}}"#, Some(7)), refused(r#"{"code":400}"#));
    }
}
