//! The open end of the feed: publishes pages of events and checks their acknowledgements.
//!
//! Only the last message of a page asks for an acknowledgement. Each message names the sequence that it must follow
//! (`Nats-Expected-Last-Sequence`), so when one is lost the server refuses all messages after it, and the next
//! acknowledgement reports that.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::{Client, HeaderMap, HeaderValue, Message, Subscriber, jetstream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio::time::Instant;

use super::stream::{self, Extent, HASH_HEADER, STREAM, SUBJECTS};
use super::{Error, RelayConfig, nats};
use crate::reader::Reader;
use crate::tail::{Follower, Page};
use farthing_core::secret::hex;

/// The most messages per acknowledgement.
const MESSAGES_PER_ACK: usize = 512;
/// The most acknowledgements awaited at once.
const MAX_AWAITED: usize = 4;
/// How long an acknowledgement may take.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two checks of the stream. Without them a stream that was deleted, cut or written into by another
/// client would be noticed only at the next event, or never.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The open end of the stream.
pub(super) struct Feed {
    client: Client,
    inbox: String,
    acks: Subscriber,
    /// The position published last.
    position: i64,
    /// Its sequence in the stream.
    sequence: u64,
    awaited: VecDeque<AwaitedAck>,
    stream: jetstream::stream::Stream,
    /// The sequence of the first event.
    first: u64,
    next_check: Instant,
    /// How often the client had connected when the stream was opened.
    connects: u64,
}

/// An acknowledgement that is due.
struct AwaitedAck {
    sequence: u64,
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
    /// Opens the stream and finds its end; creates the stream if it is gone.
    pub(super) async fn resume(config: &RelayConfig, client: Client) -> Result<Self, Error> {
        let connects = client.statistics().connects.load(Ordering::Relaxed);
        let context = jetstream::new(client.clone());
        let stream = context.get_or_create_stream(stream::config()).await.map_err(nats)?;
        let state = stream.get_info().await.map_err(nats)?.state;
        let extent = Extent::from(&state);
        let position = match stream.get_last_raw_message_by_subject(SUBJECTS).await {
            // Messages of an earlier relay may have arrived late.
            Ok(last) if last.sequence != extent.last => return Err(nats("the stream moves")),
            Ok(last) => {
                let complete =
                    stream::position(&last.headers).filter(|position| extent.holds_all_up_to(*position));
                let Some(position) = complete else {
                    // The stream is only a copy of the log, so it can be replaced.
                    tracing::error!(
                        event = "relay.stream_damaged",
                        ?state,
                        "the feed has lost messages or holds foreign ones; it is deleted and published again"
                    );
                    context.delete_stream(STREAM).await.map_err(nats)?;
                    return Err(nats("the damaged feed was deleted"));
                };
                confirm(config, position, &last.headers).await?
            }
            Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => 0,
            Err(error) => return Err(nats(error)),
        };
        if position == 0 {
            tracing::info!(
                event = "relay.publishing_from_start",
                "the feed is published from the first event on"
            );
        }
        let inbox = client.new_inbox();
        let acks = client.subscribe(inbox.clone()).await.map_err(nats)?;
        Ok(Self {
            client,
            inbox,
            acks,
            position,
            sequence: extent.last,
            awaited: VecDeque::with_capacity(MAX_AWAITED),
            stream,
            first: extent.first_event(),
            next_check: Instant::now() + CHECK_INTERVAL,
            connects,
        })
    }

    /// Publishes the next page, receives an acknowledgement or checks the stream, whichever is due first.
    pub(super) async fn step(&mut self, follower: &mut Follower) -> Result<(), Error> {
        let deadline = self.awaited.front().map(|awaited| awaited.deadline);
        let ack_timeout = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            message = self.acks.next() => self.acknowledge(message),
            () = ack_timeout => Err(Error::AckTimeout),
            () = tokio::time::sleep_until(self.next_check) => self.check().await,
            page = follower.next(self.position, MESSAGES_PER_ACK), if self.awaited.len() < MAX_AWAITED => {
                self.publish(&page?).await
            }
        }
    }

    /// Fails unless the stream is still there, complete, and written by this relay alone.
    async fn check(&mut self) -> Result<(), Error> {
        if self.client.statistics().connects.load(Ordering::Relaxed) != self.connects {
            return Err(nats("the client has reconnected"));
        }
        let state = self.stream.get_info().await.map_err(nats)?.state;
        if !Extent::from(&state).is_intact(self.first, self.sequence, self.awaited.is_empty()) {
            return Err(nats("the stream was changed by another client"));
        }
        self.next_check = Instant::now() + CHECK_INTERVAL;
        Ok(())
    }

    fn acknowledge(&mut self, message: Option<Message>) -> Result<(), Error> {
        let message = message.ok_or_else(|| nats("the client has ended"))?;
        let ack: Ack = serde_json::from_slice(&message.payload)
            .map_err(|_| Error::Refused(format!("status {:?}", message.status)))?;
        ack.check(self.awaited.pop_front().map(|awaited| awaited.sequence))
    }

    async fn publish(&mut self, page: &Page) -> Result<(), Error> {
        let last = page.len() - 1;
        for (at, entry) in page.entries().enumerate() {
            let record = entry.record()?;
            let subject = ["ledger.", record.merchant, ".", record.kind].concat();
            let body = Bytes::copy_from_slice(record.body().as_bytes());
            let headers = stream::headers(entry, &record, self.sequence);
            if at == last {
                let inbox = self.inbox.clone();
                let sent = self.client.publish_with_reply_and_headers(subject, inbox, headers, body);
                sent.await.map_err(nats)?;
            } else {
                self.client.publish_with_headers(subject, headers, body).await.map_err(nats)?;
            }
            self.position = entry.position();
            self.sequence += 1;
        }
        let deadline = Instant::now() + ACK_TIMEOUT;
        self.awaited.push_back(AwaitedAck { sequence: self.sequence, deadline });
        Ok(())
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

/// Returns `position` if the event there has the hash in `headers`, those of the stream's last message.
async fn confirm(config: &RelayConfig, position: i64, headers: &HeaderMap) -> Result<i64, Error> {
    let reader = Reader::connect(&config.database_url, config.role).await?;
    let hash = reader.hash_at(position).await?.map(|hash| hex(&hash));
    let published = headers.get(HASH_HEADER).map(HeaderValue::as_str);
    if hash.as_deref() == published { Ok(position) } else { Err(Error::Forked { position }) }
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
        assert_eq!(check(r#"{"stream":"LEDGER","seq":7}"#, Some(7)), Ok(()));
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
