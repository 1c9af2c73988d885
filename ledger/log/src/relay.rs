//! Publishes the log, in order and without a gap, to the JetStream stream `LEDGER`: the public feed. JetStream is
//! treated as lossy: the relay resumes after the last event that the stream holds, and republishes from the first
//! when the stream is gone. Invariant: while the relay works, the stream holds the events from the first on, each
//! once, and nothing else; a stream that does not is deleted and made anew.
//!
//! Only every so many messages ask for an acknowledgement. Each one names the sequence it must follow
//! (`Nats-Expected-Last-Sequence`), so when one is lost the server refuses all behind it, and the next
//! acknowledgement tells.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, StorageType};
use async_nats::{Client, HeaderMap, HeaderName, Subscriber, jetstream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connect::{self, Role, redacted};
use super::reader::{self, Entry, Reader};
use super::tail::{Follower, Pace, Page, Tail};
use farthing_core::secret::hex;

/// The stream's name.
pub const STREAM: &str = "LEDGER";
/// The subjects of the stream: `ledger.<merchant>.<kind>`.
pub const SUBJECTS: &str = "ledger.>";
/// The header with the event's position.
pub const POSITION_HEADER: HeaderName = HeaderName::from_static("farthing-position");
/// The header with the event's hash, hexadecimal.
pub const HASH_HEADER: HeaderName = HeaderName::from_static("farthing-hash");

/// Only one relay publishes at a time: whoever holds this session lock.
const TRY_LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended('farthing.relay', 0))";

/// How often a relay that waits its turn tries.
const TURN_RETRY: Duration = Duration::from_secs(1);
/// Messages per acknowledgement, at most.
const MESSAGES_PER_ACK: usize = 512;
/// Acknowledgements awaited at once, at most.
const MAX_AWAITED: usize = 4;
/// How long an acknowledgement may take.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server remembers message ids. Order is kept by sequence, so this is a courtesy that costs memory.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(5);
/// How often the relay looks at its stream: one that was deleted, cut or written into by somebody else would be
/// noticed only at the next event, or never.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Why publishing stopped; it starts again by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer.
    #[error("the database is out of reach: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] reader::Error),
    /// NATS does not answer, or has no JetStream.
    #[error("NATS: {0}")]
    Nats(String),
    /// The stream did not take a message.
    #[error("the stream refused a message: {0}")]
    Refused(String),
    /// No acknowledgement came in time.
    #[error("the stream does not acknowledge")]
    Silent,
    /// The stream holds another log than this one: an operator must decide which is right.
    #[error("the stream's last event, at position {position}, is not this log's: the feed has forked")]
    Forked {
        /// The position that the stream's last message names.
        position: i64,
    },
    /// The lock was lost with its connection.
    #[error("the relay's lock was lost")]
    LockLost,
}

fn nats(error: impl std::fmt::Display) -> Error {
    Error::Nats(error.to_string())
}

/// Where the log is, and where it is published.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database.
    pub database_url: String,
    /// Under which role to read.
    pub role: Role,
    /// The NATS server.
    pub nats_url: String,
}

/// Starts a relay, which waits for its turn if another one is at work.
pub fn start(config: Config, tail: &Tail, stop: CancellationToken, tasks: &TaskTracker) {
    let tail = tail.clone();
    // A thread of its own: handing each message to a client on another thread costs more than all the rest.
    tasks.spawn_blocking(move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = runtime.block_on(stop.run_until_cancelled(run(&config, &tail)));
        }
        Err(error) => tracing::error!(%error, "the relay has no thread"),
    });
}

async fn run(config: &Config, tail: &Tail) {
    let mut backoff = BACKOFF.0;
    loop {
        let started = Instant::now();
        if let Err(error) = take_turn(config, tail).await {
            if matches!(error, Error::Forked { .. }) {
                tracing::error!(%error, "the relay stands still");
            } else {
                tracing::warn!(%error, "the relay starts again");
            }
        }
        backoff = if started.elapsed() > BACKOFF.1 { BACKOFF.0 } else { (backoff * 2).min(BACKOFF.1) };
        tokio::time::sleep(backoff).await;
    }
}

/// Publishes for as long as the lock is held and all goes well.
async fn take_turn(config: &Config, tail: &Tail) -> Result<(), Error> {
    let lock = connect::connect(&config.database_url, config.role).await?;
    while !lock.query_one(TRY_LOCK, &[]).await?.try_get::<_, bool>(0)? {
        tokio::time::sleep(TURN_RETRY).await;
    }
    let options = async_nats::ConnectOptions::new()
        .name("farthing relay")
        .retry_on_initial_connect()
        .skip_subject_validation(true);
    let client = options.connect(&config.nats_url).await.map_err(nats)?;
    let mut feed = Feed::resume(config, client).await?;
    let mut follower = tail.follow(Pace::Apart);
    loop {
        if lock.is_closed() {
            return Err(Error::LockLost);
        }
        feed.step(&mut follower).await?;
    }
}

/// The open end of the stream.
struct Feed {
    client: Client,
    inbox: String,
    acks: Subscriber,
    /// The position that was published last.
    position: i64,
    /// The stream's sequence of it.
    sequence: u64,
    awaited: VecDeque<Awaited>,
    stream: jetstream::stream::Stream,
    /// The stream's sequence of the first event.
    first: u64,
    /// When the stream is looked at next.
    look_at: Instant,
    /// Connections that the client had made when the stream was opened.
    connects: u64,
}

/// An acknowledgement that is to come.
struct Awaited {
    sequence: u64,
    deadline: Instant,
}

/// What the server answers to a message that asked for it.
#[derive(Deserialize)]
struct Ack {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<serde_json::Value>,
}

impl Feed {
    /// Opens the stream, creating it if it is gone, and finds its end.
    async fn resume(config: &Config, client: Client) -> Result<Self, Error> {
        let connects = client.statistics().connects.load(Ordering::Relaxed);
        let context = jetstream::new(client.clone());
        let stream = context.get_or_create_stream(stream_config()).await.map_err(nats)?;
        let state = stream.get_info().await.map_err(nats)?.state;
        let first = if state.messages == 0 { state.last_sequence + 1 } else { state.first_sequence };
        let position = match stream.get_last_raw_message_by_subject(SUBJECTS).await {
            // What a relay that stood still had sent already may only now have come.
            Ok(last) if last.sequence != state.last_sequence => return Err(nats("the stream moves")),
            Ok(last) => {
                let named = position(&last.headers).filter(|position| holds_all(&state, first, *position));
                let Some(named) = named else {
                    // It is only a copy: a clean one takes its place.
                    tracing::error!(
                        ?state,
                        "the feed is cut, or somebody else wrote into it: it is made anew"
                    );
                    context.delete_stream(STREAM).await.map_err(nats)?;
                    return Err(nats("the feed is made anew"));
                };
                confirm(config, named, &last.headers).await?
            }
            Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => 0,
            Err(error) => return Err(nats(error)),
        };
        let sequence = state.last_sequence;
        if position == 0 {
            tracing::info!("the feed is published from the first event on");
        }
        let inbox = client.new_inbox();
        let acks = client.subscribe(inbox.clone()).await.map_err(nats)?;
        let awaited = VecDeque::with_capacity(MAX_AWAITED);
        let look_at = Instant::now() + LOOK_INTERVAL;
        Ok(Self { client, inbox, acks, position, sequence, awaited, stream, first, look_at, connects })
    }

    /// Publishes some more events, or hears of some that were published.
    async fn step(&mut self, follower: &mut Follower) -> Result<(), Error> {
        let deadline = self.awaited.front().map(|awaited| awaited.deadline);
        let silent = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ack = self.acks.next() => self.hear(ack),
            () = silent => Err(Error::Silent),
            () = tokio::time::sleep_until(self.look_at) => self.look().await,
            page = follower.next(self.position, MESSAGES_PER_ACK), if self.awaited.len() < MAX_AWAITED => {
                self.publish(&page?).await
            }
        }
    }

    /// Is the stream still what it was made: there, whole, and nobody else's?
    async fn look(&mut self) -> Result<(), Error> {
        if self.client.statistics().connects.load(Ordering::Relaxed) != self.connects {
            return Err(nats("the server came back"));
        }
        let state = self.stream.get_info().await.map_err(nats)?.state;
        // What is not acknowledged yet may or may not be there.
        let acknowledged = self.awaited.front().is_none();
        let at_end =
            state.last_sequence == self.sequence || (!acknowledged && state.last_sequence < self.sequence);
        let whole = state.messages == state.last_sequence + 1 - self.first;
        let from_first = state.messages == 0 || state.first_sequence == self.first;
        if !(at_end && whole && from_first) {
            return Err(nats("the stream is not as it was left"));
        }
        self.look_at = Instant::now() + LOOK_INTERVAL;
        Ok(())
    }

    fn hear(&mut self, message: Option<async_nats::Message>) -> Result<(), Error> {
        let message = message.ok_or_else(|| nats("the client has ended"))?;
        let ack: Ack = serde_json::from_slice(&message.payload)
            .map_err(|_| Error::Refused(format!("status {:?}", message.status)))?;
        if let Some(error) = ack.error {
            return Err(Error::Refused(error.to_string()));
        }
        let awaited = self.awaited.pop_front().map(|awaited| awaited.sequence);
        if awaited != Some(ack.seq) || ack.duplicate {
            return Err(Error::Refused(format!("expected sequence {awaited:?}, got {}", ack.seq)));
        }
        Ok(())
    }

    async fn publish(&mut self, page: &Page) -> Result<(), Error> {
        let last = page.len() - 1;
        for (at, entry) in page.entries().enumerate() {
            let subject = ["ledger.", entry.merchant(), ".", entry.kind()].concat();
            let body = Bytes::copy_from_slice(entry.body().as_bytes());
            let headers = headers(entry, self.sequence);
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
        self.awaited.push_back(Awaited { sequence: self.sequence, deadline });
        Ok(())
    }
}

fn headers(entry: &Entry, follows: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_ID, entry.key());
    headers.insert(NATS_EXPECTED_LAST_SEQUENCE, follows.to_string());
    headers.insert(POSITION_HEADER, entry.position().to_string());
    headers.insert(HASH_HEADER, hex(entry.hash()));
    headers
}

fn stream_config() -> jetstream::stream::Config {
    jetstream::stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![SUBJECTS.to_owned()],
        storage: StorageType::File,
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        deny_purge: true,
        allow_direct: true,
        description: Some("The ledger's events in order; Postgres alone is the truth.".to_owned()),
        ..jetstream::stream::Config::default()
    }
}

/// The position that a message names.
fn position(headers: &HeaderMap) -> Option<i64> {
    headers.get(POSITION_HEADER).and_then(|value| value.as_str().parse().ok())
}

/// Does a stream whose last message names `position` hold one message for each event up to it?
fn holds_all(state: &jetstream::stream::State, first: u64, position: i64) -> bool {
    state.messages == state.last_sequence + 1 - first && u64::try_from(position) == Ok(state.messages)
}

/// `position`, once the log confirms that the event there is the one that the stream's last message is.
async fn confirm(config: &Config, position: i64, headers: &HeaderMap) -> Result<i64, Error> {
    let reader = Reader::connect(&config.database_url, config.role).await?;
    let hash = reader.hash_at(position).await?.map(|hash| hex(&hash));
    let published = headers.get(HASH_HEADER).map(async_nats::HeaderValue::as_str);
    if hash.as_deref() == published { Ok(position) } else { Err(Error::Forked { position }) }
}
