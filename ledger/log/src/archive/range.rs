//! A row of `ledger.archives`: an archived range, with the hashes at both ends and its file.

use chrono::{DateTime, Utc};
use farthing_core::partition::Partition;
use farthing_core::secret::hex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::{Client, GenericClient, Row};

use crate::chain::{GENESIS, HASH_BYTES, Hash};

/// The archived range of partition $1 that has position $2.
const WITH: &str = "\
SELECT partition, number, first_position, last_position, batches, previous_hash, last_hash, first_recorded_at,
    last_recorded_at, location, object, bytes, text_bytes, sha256
FROM ledger.archived
WHERE partition = $1 AND first_position <= $2 AND last_position >= $2 ORDER BY number DESC LIMIT 1";

/// The archived ranges of partition $1, in their order.
const ALL: &str = "\
SELECT partition, number, first_position, last_position, batches, previous_hash, last_hash, first_recorded_at,
    last_recorded_at, location, object, bytes, text_bytes, sha256
FROM ledger.archived WHERE partition = $1 ORDER BY first_position";

/// The archived ranges of partition $1 of which the table has record batches, in their order.
const IN_TABLE: &str = "\
SELECT a.partition, a.number, a.first_position, a.last_position, a.batches, a.previous_hash, a.last_hash,
    a.first_recorded_at, a.last_recorded_at, a.location, a.object, a.bytes, a.text_bytes, a.sha256
FROM ledger.archived AS a
CROSS JOIN LATERAL (
    SELECT FROM ledger.batches AS b
    WHERE b.partition = $1 AND b.first_position BETWEEN a.first_position AND a.last_position
    ORDER BY b.first_position LIMIT 1) AS stored
WHERE a.partition = $1 ORDER BY a.first_position";

/// The last archived range of partition $1.
const NEWEST_RANGE: &str = "\
SELECT partition, number, first_position, last_position, batches, previous_hash, last_hash, first_recorded_at,
    last_recorded_at, location, object, bytes, text_bytes, sha256
FROM ledger.archived WHERE partition = $1 ORDER BY last_position DESC LIMIT 1";

/// The number of the newest archive of partition $1, restored or not.
const NEWEST: &str = "SELECT coalesce(max(number), 0) FROM ledger.archives WHERE partition = $1";

const RECORD: &str = "\
INSERT INTO ledger.archives (partition, number, first_position, last_position, batches, previous_hash, last_hash,
    first_recorded_at, last_recorded_at, location, object, bytes, text_bytes, sha256)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";

/// Whether the table has a record batch of partition $1 that begins from $2 to $3.
const IS_IN_TABLE: &str = "\
SELECT EXISTS (
    SELECT FROM ledger.batches AS b WHERE b.partition = $1 AND b.first_position BETWEEN $2 AND $3)";

/// A range of the log that was moved to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArchivedRange {
    /// The partition.
    pub partition: Partition,
    /// Its number among the archives of the partition.
    pub number: i32,
    /// The position of its first event.
    pub first_position: i64,
    /// The position of its last event.
    pub last_position: i64,
    /// The number of record batches.
    pub batches: i32,
    /// The hash of the event before the first one.
    #[serde(serialize_with = "as_hex")]
    pub previous_hash: Hash,
    /// The hash of the last event.
    #[serde(serialize_with = "as_hex")]
    pub last_hash: Hash,
    /// When the first record batch was appended.
    pub first_recorded_at: DateTime<Utc>,
    /// When the last record batch was appended.
    pub last_recorded_at: DateTime<Utc>,
    /// Where the file was written.
    pub location: String,
    /// The name of the file there.
    pub object: String,
    /// Its size.
    pub bytes: i64,
    /// Its size without compression.
    pub text_bytes: i64,
    /// The SHA-256 of the file.
    #[serde(serialize_with = "as_hex")]
    pub sha256: [u8; HASH_BYTES],
}

fn as_hex<S: serde::Serializer>(bytes: &[u8; HASH_BYTES], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(bytes))
}

impl ArchivedRange {
    fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        // The table has checks of the lengths.
        let hash = |name: &str| {
            let bytes: &[u8] = row.try_get(name)?;
            Ok::<Hash, tokio_postgres::Error>(bytes.try_into().unwrap_or(GENESIS))
        };
        Ok(Self {
            partition: Partition::new(row.try_get("partition")?),
            number: row.try_get("number")?,
            first_position: row.try_get("first_position")?,
            last_position: row.try_get("last_position")?,
            batches: row.try_get("batches")?,
            previous_hash: hash("previous_hash")?,
            last_hash: hash("last_hash")?,
            first_recorded_at: row.try_get("first_recorded_at")?,
            last_recorded_at: row.try_get("last_recorded_at")?,
            location: row.try_get("location")?,
            object: row.try_get("object")?,
            bytes: row.try_get("bytes")?,
            text_bytes: row.try_get("text_bytes")?,
            sha256: hash("sha256")?,
        })
    }

    /// The archived range of `partition` that has `position`.
    pub(super) async fn with(
        client: &impl GenericClient,
        partition: Partition,
        position: i64,
    ) -> Result<Option<Self>, tokio_postgres::Error> {
        let row = client.query_opt(WITH, &[&partition.number(), &position]).await?;
        row.map(|row| Self::of(&row)).transpose()
    }

    /// The archived ranges of `partition`, in their order.
    pub(super) async fn all(
        client: &Client,
        partition: Partition,
    ) -> Result<Vec<Self>, tokio_postgres::Error> {
        client.query(ALL, &[&partition.number()]).await?.iter().map(Self::of).collect()
    }

    /// The archived ranges of `partition` of which the table has record batches, in their order.
    pub(super) async fn in_table(
        client: &Client,
        partition: Partition,
    ) -> Result<Vec<Self>, tokio_postgres::Error> {
        client.query(IN_TABLE, &[&partition.number()]).await?.iter().map(Self::of).collect()
    }

    /// The last archived range of `partition`.
    pub(super) async fn newest(
        client: &Client,
        partition: Partition,
    ) -> Result<Option<Self>, tokio_postgres::Error> {
        let row = client.query_opt(NEWEST_RANGE, &[&partition.number()]).await?;
        row.map(|row| Self::of(&row)).transpose()
    }

    /// The number that the next archive of `partition` has.
    pub(super) async fn next_number(
        client: &Client,
        partition: Partition,
    ) -> Result<i32, tokio_postgres::Error> {
        let newest: i32 = client.query_one(NEWEST, &[&partition.number()]).await?.try_get(0)?;
        Ok(newest + 1)
    }

    /// Records the range. Postgres refuses one that differs from the log or is still needed.
    pub(super) async fn record(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let hashes: [&[u8]; 3] = [&self.previous_hash, &self.last_hash, &self.sha256];
        client
            .execute(
                RECORD,
                &[
                    &self.partition.number(),
                    &self.number,
                    &self.first_position,
                    &self.last_position,
                    &self.batches,
                    &hashes[0],
                    &hashes[1],
                    &self.first_recorded_at,
                    &self.last_recorded_at,
                    &self.location,
                    &self.object,
                    &self.bytes,
                    &self.text_bytes,
                    &hashes[2],
                ],
            )
            .await
            .map(drop)
    }

    /// Whether the table still has record batches of the range, or has them again.
    pub(super) async fn is_in_table(&self, client: &Client) -> Result<bool, tokio_postgres::Error> {
        let parameters = (self.partition.number(), self.first_position, self.last_position);
        client.query_one(IS_IN_TABLE, &[&parameters.0, &parameters.1, &parameters.2]).await?.try_get(0)
    }

    /// The manifest beside the file: what a reader without the database needs.
    pub(super) fn manifest(&self) -> Value {
        json!({
            "format": super::file::FORMAT,
            "version": super::file::VERSION,
            "partition": self.partition,
            "first_position": self.first_position,
            "last_position": self.last_position,
            "events": self.last_position - self.first_position + 1,
            "batches": self.batches,
            "previous_hash": hex(&self.previous_hash),
            "last_hash": hex(&self.last_hash),
            "first_recorded_at": self.first_recorded_at,
            "last_recorded_at": self.last_recorded_at,
            "file": self.object.rsplit('/').next(),
            "bytes": self.bytes,
            "text_bytes": self.text_bytes,
            "sha256": hex(&self.sha256),
        })
    }

    /// The name of the manifest.
    pub(super) fn manifest_object(&self) -> String {
        format!("{}.manifest.json", self.object.trim_end_matches(super::file::SUFFIX))
    }
}
