//! The log in Postgres, read as plain rows and JSON values.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use farthing_log::partitions;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_postgres::{Client, NoTls, Row};

use crate::wait;

/// The record batches with events after a position that contain a text.
const BATCHES: &str = "\
SELECT first_position, recorded_at, writer, convert_from(events, 'UTF8'), hashes, partition FROM ledger.batches
WHERE first_position + count > $1::bigint + 1 AND position($2::bytea IN events) > 0
ORDER BY partition, first_position";
/// The same after a position of each partition.
const LATER_BATCHES: &str = "\
SELECT b.first_position, b.recorded_at, b.writer, convert_from(b.events, 'UTF8'), b.hashes, b.partition
FROM unnest($3::smallint[], $4::bigint[]) AS since(partition, position)
JOIN ledger.batches AS b ON b.partition = since.partition AND b.first_position > since.position
WHERE b.first_position + b.count > $1::bigint + 1 AND position($2::bytea IN b.events) > 0
ORDER BY b.partition, b.first_position";
const HEADS: &str = "SELECT partition, position, hash FROM ledger.heads ORDER BY partition";
const STATES: &str = "\
SELECT s.kind, s.id, s.body FROM ledger.state AS s
JOIN ledger.heads AS h ON h.partition = s.partition AND h.generation = s.generation
WHERE s.kind = $1 ORDER BY s.id";
const STATES_WITH: &str = "\
SELECT s.id, s.body FROM ledger.state AS s
JOIN ledger.heads AS h ON h.partition = s.partition AND h.generation = s.generation
WHERE s.kind = $1 AND position($2 IN s.body) > 0 ORDER BY s.id";
const STATE: &str = "\
SELECT s.body FROM ledger.state AS s
JOIN ledger.heads AS h ON h.partition = s.partition AND h.generation = s.generation
WHERE s.kind = $1 AND s.id = $2";
const CHECKPOINTS: &str = "\
SELECT c.position FROM ledger.checkpoints AS c
JOIN ledger.heads AS h ON h.partition = c.partition AND h.generation = c.generation ORDER BY c.partition";

/// The line of an event.
#[derive(serde::Deserialize)]
struct Record<'a> {
    kind: &'a str,
    version: i32,
    key: &'a str,
    merchant: &'a str,
    occurred_at: DateTime<Utc>,
    #[serde(borrow)]
    body: &'a serde_json::value::RawValue,
}

/// A stored event.
#[derive(Debug, Clone)]
pub struct Logged {
    /// Its partition.
    pub partition: i16,
    /// Its position there.
    pub position: i64,
    /// Its kind.
    pub kind: String,
    /// Its schema version.
    pub schema_version: i32,
    /// The key of its fact.
    pub key: String,
    /// Its merchant.
    pub merchant_id: String,
    /// The time of the fact.
    pub occurred_at: DateTime<Utc>,
    /// The time of the append.
    pub recorded_at: DateTime<Utc>,
    /// The exact text of the body.
    pub text: String,
    /// The body.
    pub body: Value,
    /// The process that appended it.
    pub writer: String,
    /// The exact text of its line.
    pub record: String,
    /// Its hash in the chain.
    pub hash: Vec<u8>,
}

impl Logged {
    /// The events of a row of [`BATCHES`].
    fn of(row: &Row) -> Vec<Self> {
        let (first, lines, hashes): (i64, String, Vec<u8>) = (row.get(0), row.get(3), row.get(4));
        let read = |((line, hash), position): ((&str, &[u8]), i64)| {
            let record: Record<'_> = serde_json::from_str(line).expect("a line is a record");
            Self {
                partition: row.get(5),
                position,
                kind: record.kind.to_owned(),
                schema_version: record.version,
                key: record.key.to_owned(),
                merchant_id: record.merchant.to_owned(),
                occurred_at: record.occurred_at,
                recorded_at: row.get(1),
                body: serde_json::from_str(record.body.get()).expect("a body is JSON"),
                text: record.body.get().to_owned(),
                writer: row.get(2),
                record: line.to_owned(),
                hash: hash.to_vec(),
            }
        };
        lines.split('\n').zip(hashes.chunks(32)).zip(first..).map(read).collect()
    }

    /// A text member of the body; empty if it is absent.
    pub fn text(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_default()
    }
}

/// The head of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The partition.
    pub partition: i16,
    /// The position of its last event.
    pub position: i64,
    /// The hash of its last event.
    pub hash: Vec<u8>,
}

/// A connection to the database, as its owner.
pub struct Log {
    /// The connection.
    pub sql: Client,
    /// The heads when the events began that are looked up here. The log of a shared instance is long, and a look-up reads
    /// all of it.
    since: Option<Vec<Head>>,
}

impl Log {
    /// Connects.
    pub async fn open(database_url: &str) -> Self {
        Self::try_open(database_url).await.expect("the database can be reached")
    }

    /// Connects, if the database is available.
    pub async fn try_open(database_url: &str) -> Result<Self, tokio_postgres::Error> {
        let (sql, connection) = tokio_postgres::connect(database_url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self { sql, since: None })
    }

    /// The same log, in which single events and those of a merchant are looked up among those that are appended from now
    /// on.
    #[must_use]
    pub async fn from_now_on(self) -> Self {
        Self { since: Some(self.heads().await), ..self }
    }

    /// The head of each partition.
    pub async fn heads(&self) -> Vec<Head> {
        let rows = self.sql.query(HEADS, &[]).await.expect("the heads can be read");
        let head = |row: &Row| Head { partition: row.get(0), position: row.get(1), hash: row.get(2) };
        rows.iter().map(head).collect()
    }

    /// The number of events in the log: the sum of the last positions.
    pub async fn head(&self) -> i64 {
        self.heads().await.iter().map(|head| head.position).sum()
    }

    /// The events after `position`, of all batches that contain `text`.
    async fn read(&self, position: i64, text: &str) -> Vec<Logged> {
        let rows =
            self.sql.query(BATCHES, &[&position, &text.as_bytes()]).await.expect("the log can be read");
        rows.iter().flat_map(Logged::of).filter(|event| event.position > position).collect()
    }

    /// The same, among those that are looked up here.
    async fn look_up(&self, position: i64, text: &str) -> Vec<Logged> {
        let Some(since) = &self.since else { return self.read(position, text).await };
        let (partitions, positions): (Vec<i16>, Vec<i64>) =
            since.iter().map(|head| (head.partition, head.position)).unzip();
        let rows =
            self.sql.query(LATER_BATCHES, &[&position, &text.as_bytes(), &partitions, &positions]).await;
        let rows = rows.expect("the log can be read");
        rows.iter().flat_map(Logged::of).filter(|event| event.position > position).collect()
    }

    /// All events after `position`.
    pub async fn after(&self, position: i64) -> Vec<Logged> {
        self.read(position, "").await
    }

    /// A merchant's events after `position`.
    pub async fn of_merchant(&self, merchant_id: &str, position: i64) -> Vec<Logged> {
        let mut events = self.look_up(position, merchant_id).await;
        events.retain(|event| event.merchant_id == merchant_id);
        events
    }

    /// The event of a fact, if it is in the log now.
    pub async fn event(&self, key: &str) -> Option<Logged> {
        self.look_up(0, &format!("\"key\":\"{key}\"")).await.into_iter().find(|event| event.key == key)
    }

    /// The stored states of a kind as they are stored now, in the live generation: id and body.
    pub async fn stored_states(&self, kind: &str) -> Vec<(String, Value)> {
        let rows = self.sql.query(STATES, &[&kind]).await.expect("the states can be read");
        let state = |row: &Row| {
            let text: String = row.get(2);
            (row.get(1), serde_json::from_str(&text).expect("a state is JSON"))
        };
        rows.iter().map(state).collect()
    }

    /// The position up to which the states of each partition are stored.
    pub async fn checkpoints(&self) -> Vec<i64> {
        self.positions(CHECKPOINTS).await
    }

    /// The stored states of a kind: id and body, once those of all events so far are stored.
    pub async fn states(&self, kind: &str) -> Vec<(String, Value)> {
        self.stored().await;
        self.stored_states(kind).await
    }

    /// The stored states of a kind that belong to a merchant, once those of all events so far are stored.
    pub async fn states_of_merchant(&self, kind: &str, merchant_id: &str) -> Vec<Value> {
        self.stored().await;
        let rows = self.sql.query(STATES_WITH, &[&kind, &merchant_id]).await;
        let states = rows.expect("the states can be read").into_iter();
        let read = |row: Row| serde_json::from_str(row.get(1)).expect("a state is JSON");
        states.map(read).filter(|body: &Value| body["merchant_id"] == merchant_id).collect()
    }

    /// Waits until the states of all events so far are stored.
    pub async fn stored(&self) {
        let heads = self.positions(HEADS).await;
        wait::eventually("the states are stored", async || {
            let stored = self.positions(CHECKPOINTS).await;
            stored.iter().zip(&heads).all(|(stored, head)| stored >= head).then_some(())
        })
        .await;
    }

    /// A position of each partition.
    async fn positions(&self, sql: &str) -> Vec<i64> {
        let rows = self.sql.query(sql, &[]).await.expect("positions can be read");
        rows.iter().map(|row| row.get("position")).collect()
    }

    /// The partition of a merchant.
    pub async fn partition_of(&self, merchant_id: &str) -> Partition {
        let partitions = partitions::load(&self.sql).await.expect("the heads can be read");
        let partitions = partitions.expect("the log has partitions");
        partitions.of(merchant_id.parse().expect("a merchant's id"))
    }

    /// A stored state.
    pub async fn state(&self, kind: &str, id: &str) -> Option<Value> {
        self.stored().await;
        let row = self.sql.query_opt(STATE, &[&kind, &id]).await.expect("a state can be read")?;
        Some(serde_json::from_str(row.get(0)).expect("a state is JSON"))
    }
}

/// The partition of a merchant in a log of so many: the random part of its id, modulo their number.
pub fn partition_of(merchant_id: &str, partitions: i64) -> i16 {
    const DIGITS: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let (_, ulid) = merchant_id.split_once('_').expect("an id has a prefix");
    let digit = |digit| DIGITS.find(digit).expect("a digit of base 32");
    let random = ulid[10..].chars().fold(0, |number: u128, next| number * 32 + digit(next) as u128);
    i16::try_from(random % u128::from(partitions.unsigned_abs())).expect("a partition")
}

/// The hash of an event after the one with the hash `previous`, without the ledger's code.
pub fn next_hash(previous: &[u8], position: i64, recorded_at_us: i64, writer: &str, record: &str) -> Vec<u8> {
    let mut digest = Sha256::new_with_prefix(previous);
    let fields: [&[u8]; 4] =
        [&position.to_be_bytes(), &recorded_at_us.to_be_bytes(), writer.as_bytes(), record.as_bytes()];
    for field in fields {
        digest.update(u32::try_from(field.len()).unwrap().to_be_bytes());
        digest.update(field);
    }
    digest.finalize().to_vec()
}

/// Checks the positions and the hash chain of every partition, without the ledger's code.
pub fn check_chain(events: &[Logged], heads: &[Head]) {
    assert!(events.iter().all(|event| heads.iter().any(|head| head.partition == event.partition)));
    for head in heads {
        let (mut position, mut previous) = (0, vec![0_u8; 32]);
        for event in events.iter().filter(|event| event.partition == head.partition) {
            position += 1;
            assert_eq!(event.position, position, "positions have no gap");
            let recorded_at_us = event.recorded_at.timestamp_micros();
            previous = next_hash(&previous, event.position, recorded_at_us, &event.writer, &event.record);
            assert_eq!(previous, event.hash, "the hash of {}", event.position);
        }
        assert_eq!((position, &previous), (head.position, &head.hash), "the head is the last event");
    }
}
