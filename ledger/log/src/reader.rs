//! Reads the log in order. Invariant: positions have no gap; a gap is an error and is never skipped.

use chrono::{DateTime, Utc};
use futures_util::TryStreamExt as _;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::connect::{self, Role, redacted};
use farthing_core::event::{Fact, Recorded, codec};
use farthing_core::ids::{self, MerchantId};

/// The events after a position, in order.
pub const READ: &str = "SELECT position, kind, schema_version, key, merchant_id, occurred_at, body, hash \
     FROM ledger.events WHERE position > $1 ORDER BY position LIMIT $2";

/// The hash of one event.
pub const READ_HASH: &str = "SELECT hash FROM ledger.events WHERE position = $1";

/// The position of the newest event.
pub const READ_HEAD: &str = "SELECT position FROM ledger.head";

/// Rows decoded before the task yields to others.
const ROWS_BETWEEN_YIELDS: usize = 256;

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer.
    #[error("the log is out of reach: {}", redacted(.0))]
    Database(#[from] tokio_postgres::Error),
    /// An event is missing; the log is damaged.
    #[error("the log has a gap: position {expected} is missing, {found} follows")]
    Gap {
        /// The position that is missing.
        expected: i64,
        /// The position that was read instead.
        found: i64,
    },
}

/// Why this program cannot read an event. It stops every consumer that must know the event.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its kind or version is unknown, or its body is malformed.
    #[error(transparent)]
    Codec(#[from] codec::Error),
    /// Its merchant id is malformed.
    #[error("merchant {0}")]
    Merchant(#[from] ids::Malformed),
}

/// One event of the log: the stored row and the decoded event.
#[derive(Debug)]
pub struct Entry {
    position: i64,
    recorded: Result<Recorded, Unreadable>,
    // The bytes that Postgres sent, so that the relay copies nothing.
    row: Row,
}

mod column {
    pub(super) const POSITION: usize = 0;
    pub(super) const KIND: usize = 1;
    pub(super) const SCHEMA_VERSION: usize = 2;
    pub(super) const KEY: usize = 3;
    pub(super) const MERCHANT_ID: usize = 4;
    pub(super) const OCCURRED_AT: usize = 5;
    pub(super) const BODY: usize = 6;
    pub(super) const HASH: usize = 7;
}

impl Entry {
    fn read(row: Row) -> Result<Self, tokio_postgres::Error> {
        let position = row.try_get(column::POSITION)?;
        // Checked here once, so that the accessors cannot fail.
        let _: (&str, &[u8]) = (row.try_get(column::KEY)?, row.try_get(column::HASH)?);
        let kind: &str = row.try_get(column::KIND)?;
        let version: i32 = row.try_get(column::SCHEMA_VERSION)?;
        let merchant: &str = row.try_get(column::MERCHANT_ID)?;
        let occurred_at: DateTime<Utc> = row.try_get(column::OCCURRED_AT)?;
        let body: JsonText<'_> = row.try_get(column::BODY)?;
        let decode = || -> Result<Recorded, Unreadable> {
            let merchant_id: MerchantId = merchant.parse()?;
            let event = codec::decode(kind, version, body.0)?;
            Ok(Recorded { position, fact: Fact { merchant_id, occurred_at, event } })
        };
        let recorded = decode();
        Ok(Self { position, recorded, row })
    }

    /// The event's position in the log.
    pub const fn position(&self) -> i64 {
        self.position
    }

    /// The decoded event, or why this program cannot read it.
    pub const fn recorded(&self) -> Result<&Recorded, &Unreadable> {
        self.recorded.as_ref()
    }

    /// The name of its kind.
    pub fn kind(&self) -> &str {
        self.row.get(column::KIND)
    }

    /// The fact's key.
    pub fn key(&self) -> &str {
        self.row.get(column::KEY)
    }

    /// The id of its merchant, as text.
    pub fn merchant(&self) -> &str {
        self.row.get(column::MERCHANT_ID)
    }

    /// The exact text of the body.
    pub fn body(&self) -> &str {
        self.row.get::<_, JsonText<'_>>(column::BODY).0
    }

    /// Its hash in the hash chain.
    pub fn hash(&self) -> &[u8] {
        self.row.get(column::HASH)
    }
}

/// The exact text of a column of type `json`.
struct JsonText<'a>(&'a str);

impl<'a> FromSql<'a> for JsonText<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(std::str::from_utf8(raw)?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

/// A connection that reads the log.
#[derive(Debug)]
pub struct Reader {
    client: Client,
    read: Statement,
}

impl Reader {
    /// Connects under `role`.
    pub async fn connect(database_url: &str, role: Role) -> Result<Self, Error> {
        let client = connect::connect(database_url, role).await?;
        let read = client.prepare(READ).await?;
        Ok(Self { client, read })
    }

    /// Reads at most `limit` events after `position`, in order and without a gap.
    pub async fn read(&self, position: i64, limit: usize) -> Result<Vec<Entry>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters: [&(dyn ToSql + Sync); 2] = [&position, &limit];
        let mut rows = std::pin::pin!(self.client.query_raw(&self.read, parameters).await?);
        let mut entries: Vec<Entry> = Vec::new();
        let mut expected = position + 1;
        while let Some(row) = rows.try_next().await? {
            let entry = Entry::read(row)?;
            if entry.position != expected {
                return Err(Error::Gap { expected, found: entry.position });
            }
            expected += 1;
            entries.push(entry);
            if entries.len().is_multiple_of(ROWS_BETWEEN_YIELDS) {
                tokio::task::yield_now().await;
            }
        }
        Ok(entries)
    }

    /// Reads the hash of the event at `position`; `None` if there is no such event.
    pub async fn hash_at(&self, position: i64) -> Result<Option<Vec<u8>>, Error> {
        let row = self.client.query_opt(READ_HASH, &[&position]).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Reads the position of the newest event.
    pub async fn head(&self) -> Result<i64, Error> {
        Ok(self.client.query_one(READ_HEAD, &[]).await?.try_get(0)?)
    }
}
