//! The log in Postgres, read as plain rows and JSON values.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_postgres::{Client, NoTls, Row};

const EVENTS: &str = "SELECT position, kind, schema_version, key, merchant_id, occurred_at, recorded_at,
    body::text, metadata::text, hash FROM ledger.events WHERE position > $1 ORDER BY position";
const EVENTS_OF: &str = "SELECT position, kind, schema_version, key, merchant_id, occurred_at, recorded_at,
    body::text, metadata::text, hash FROM ledger.events WHERE merchant_id = $1 AND position > $2 ORDER BY position";
const EVENT: &str = "SELECT position, kind, schema_version, key, merchant_id, occurred_at, recorded_at,
    body::text, metadata::text, hash FROM ledger.events WHERE key = $1";
const HEAD: &str = "SELECT position, hash FROM ledger.head";
const STATES: &str = "SELECT kind, id, body FROM ledger.state WHERE kind = $1 ORDER BY id";

/// A stored event.
#[derive(Debug, Clone)]
pub struct Logged {
    /// Its position.
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
    /// The exact text of the metadata.
    pub metadata: String,
    /// Its hash in the chain.
    pub hash: Vec<u8>,
}

impl Logged {
    fn of(row: &Row) -> Self {
        let text: String = row.get(7);
        Self {
            position: row.get(0),
            kind: row.get(1),
            schema_version: row.get(2),
            key: row.get(3),
            merchant_id: row.get(4),
            occurred_at: row.get(5),
            recorded_at: row.get(6),
            body: serde_json::from_str(&text).expect("a body is JSON"),
            text,
            metadata: row.get(8),
            hash: row.get(9),
        }
    }

    /// A text member of the body; empty if it is absent.
    pub fn text(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_default()
    }
}

/// A connection to the database, as its owner.
pub struct Log {
    /// The connection.
    pub sql: Client,
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
        Ok(Self { sql })
    }

    /// The last position.
    pub async fn head(&self) -> i64 {
        self.sql.query_one(HEAD, &[]).await.expect("the head can be read").get(0)
    }

    /// All events after `position`.
    pub async fn after(&self, position: i64) -> Vec<Logged> {
        let rows = self.sql.query(EVENTS, &[&position]).await.expect("the log can be read");
        rows.iter().map(Logged::of).collect()
    }

    /// A merchant's events after `position`.
    pub async fn of_merchant(&self, merchant_id: &str, position: i64) -> Vec<Logged> {
        let rows = self.sql.query(EVENTS_OF, &[&merchant_id, &position]).await.expect("the log can be read");
        rows.iter().map(Logged::of).collect()
    }

    /// The event of a fact, if it is in the log now.
    pub async fn event(&self, key: &str) -> Option<Logged> {
        self.sql.query_opt(EVENT, &[&key]).await.expect("the log can be read").as_ref().map(Logged::of)
    }

    /// The stored states of a kind: id and body.
    pub async fn states(&self, kind: &str) -> Vec<(String, Value)> {
        let rows = self.sql.query(STATES, &[&kind]).await.expect("the states can be read");
        let state = |row: &Row| {
            let text: String = row.get(2);
            (row.get(1), serde_json::from_str(&text).expect("a state is JSON"))
        };
        rows.iter().map(state).collect()
    }

    /// A stored state.
    pub async fn state(&self, kind: &str, id: &str) -> Option<Value> {
        self.states(kind).await.into_iter().find(|(there, _)| there == id).map(|(_, body)| body)
    }
}

/// Checks the positions and the hash chain of the whole log, without the ledger's code.
pub fn check_chain(events: &[Logged], head: (i64, &[u8])) {
    let mut previous = vec![0_u8; 32];
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.position, i64::try_from(at).unwrap() + 1, "positions have no gap");
        let fields: [Vec<u8>; 9] = [
            event.position.to_be_bytes().to_vec(),
            event.kind.clone().into_bytes(),
            event.schema_version.to_be_bytes().to_vec(),
            event.key.clone().into_bytes(),
            event.merchant_id.clone().into_bytes(),
            event.occurred_at.timestamp_micros().to_be_bytes().to_vec(),
            event.recorded_at.timestamp_micros().to_be_bytes().to_vec(),
            event.text.clone().into_bytes(),
            event.metadata.clone().into_bytes(),
        ];
        let mut bytes = previous;
        for field in fields {
            bytes.extend_from_slice(&u32::try_from(field.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(&field);
        }
        previous = Sha256::digest(&bytes).to_vec();
        assert_eq!(previous, event.hash, "the hash of {}", event.position);
    }
    let last = events.last().map_or(0, |event| event.position);
    assert_eq!((last, previous.as_slice()), head, "the head is the last event");
}
