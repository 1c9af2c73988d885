//! The writing connection and its statements, prepared once.

use chrono::{DateTime, Utc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::AppenderConfig;
use super::batch::AppendBatch;
use crate::chain::Hash;
use crate::{claims, connect, states};
use farthing_core::command::PersonalChange;
use farthing_core::event::{ContactPart, Fact, codec};
use farthing_core::ids::CustomerId;
use farthing_core::state::StateKey;

/// Settings for statements that find a few rows by their keys. They make the planner use the index even while tables
/// are small and their statistics are old, and plan each statement once.
const SETTINGS: &str = "\
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET plan_cache_mode = force_generic_plan;
SET synchronous_commit = on;
SET statement_timeout = '10s';
SET idle_in_transaction_session_timeout = '5s'";

pub(super) const LOCK_HEAD: &str = "SELECT position, hash, epoch FROM ledger.head FOR UPDATE";

pub(super) const PEEK_HEAD: &str = "SELECT position FROM ledger.head";

/// The events after position $1, at most $2, for the catch-up with other writers.
const READ_EVENTS: &str = "\
SELECT position, kind, schema_version, merchant_id, occurred_at, body::text
FROM ledger.events WHERE position > $1 ORDER BY position LIMIT $2";

/// Appends a decided batch if the head is still at the position it was decided at ($1). Returns the number of heads
/// moved: 1, or 0 if another writer was faster, in which case nothing is written. One statement is one transaction and
/// one round trip; it locks the head's row first, and every other part depends on that row.
const APPEND: &str = "\
WITH moved AS (
    UPDATE ledger.head SET position = $1 + cardinality($7::text[]), hash = $2
    WHERE position = $1 AND epoch = $17 RETURNING position
), appended AS (
    INSERT INTO ledger.events
        (position, kind, schema_version, key, merchant_id, occurred_at, recorded_at, body, metadata, hash)
    SELECT $1 + e.n, e.kind, e.schema_version, e.key, e.merchant_id, e.occurred_at, $3, e.body::json, $4::text::json,
           e.hash
    FROM unnest($5::text[], $6::integer[], $7::text[], $8::text[], $9::timestamptz[], $10::text[], $11::bytea[])
        WITH ORDINALITY AS e(kind, schema_version, key, merchant_id, occurred_at, body, hash, n)
    WHERE EXISTS (SELECT FROM moved)
), put AS (
    INSERT INTO ledger.state (kind, id, body)
    SELECT s.kind, s.id, s.body FROM unnest($12::text[], $13::text[], $14::text[]) AS s(kind, id, body)
    WHERE EXISTS (SELECT FROM moved)
    ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body
), deleted AS (
    DELETE FROM ledger.state AS s USING unnest($15::text[], $16::text[]) AS d(kind, id)
    WHERE s.kind = d.kind AND s.id = d.id AND EXISTS (SELECT FROM moved)
)
SELECT count(*) FROM moved";

/// Writes a customer's personal data; $6, $7 and $8 say whether name, e-mail and phone change.
const PUT_PERSONAL: &str = "\
INSERT INTO personal.customer AS p (customer_id, first_name, last_name, email, phone)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (customer_id) DO UPDATE SET
    first_name = CASE WHEN $6::boolean THEN excluded.first_name ELSE p.first_name END,
    last_name = CASE WHEN $6::boolean THEN excluded.last_name ELSE p.last_name END,
    email = CASE WHEN $7::boolean THEN excluded.email ELSE p.email END,
    phone = CASE WHEN $8::boolean THEN excluded.phone ELSE p.phone END";

const ERASE_PERSONAL: &str = "DELETE FROM personal.customer WHERE customer_id = $1";

/// Increments the epoch, which fences an append that was given up: if it still arrives, it writes nothing.
pub(super) const NEXT_EPOCH: &str = "UPDATE ledger.head SET epoch = epoch + 1";

pub(super) const IS_RECORDED: &str = "SELECT EXISTS (SELECT FROM ledger.events WHERE key = $1)";

/// The head of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) position: i64,
    pub(super) hash: Hash,
    pub(super) epoch: i64,
}

/// A connection that writes.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) lock_head: Statement,
    pub(super) peek_head: Statement,
    pub(super) read_events: Statement,
    pub(super) load: Statement,
    pub(super) append: Statement,
    pub(super) claims: claims::Statements,
    put_personal: Statement,
    erase_personal: Statement,
}

impl Session {
    pub(super) async fn open(config: &AppenderConfig) -> Result<Self, tokio_postgres::Error> {
        let client = connect::connect(&config.database_url, config.role).await?;
        client.batch_execute(SETTINGS).await?;
        let (lock_head, peek_head, read_events, load, append, claims, put_personal, erase_personal) = tokio::try_join!(
            client.prepare(LOCK_HEAD),
            client.prepare(PEEK_HEAD),
            client.prepare(READ_EVENTS),
            client.prepare(states::LOAD),
            client.prepare(APPEND),
            claims::Statements::prepare(&client),
            client.prepare(PUT_PERSONAL),
            client.prepare(ERASE_PERSONAL),
        )?;
        Ok(Self {
            client,
            lock_head,
            peek_head,
            read_events,
            load,
            append,
            claims,
            put_personal,
            erase_personal,
        })
    }

    /// Writes or erases the personal data of a customer.
    pub(super) async fn change_personal(
        &self,
        id: CustomerId,
        change: &PersonalChange,
    ) -> Result<(), tokio_postgres::Error> {
        let id = id.to_string();
        match change {
            PersonalChange::Write { parts, data } => {
                let [name, email, phone] = [ContactPart::Name, ContactPart::Email, ContactPart::Phone]
                    .map(|part| parts.contains(&part));
                let row: [&(dyn ToSql + Sync); 8] =
                    [&id, &data.first_name, &data.last_name, &data.email, &data.phone, &name, &email, &phone];
                self.client.execute(&self.put_personal, &row).await?;
            }
            PersonalChange::Erase => {
                self.client.execute(&self.erase_personal, &[&id]).await?;
            }
        }
        Ok(())
    }

    /// Appends `batch` if the head is still `expected`; returns whether it was.
    pub(super) async fn append(
        &self,
        expected: Head,
        batch: &AppendBatch,
        changes: &[(StateKey, Option<String>)],
    ) -> Result<bool, tokio_postgres::Error> {
        let stored: Vec<_> = changes.iter().map(|(key, body)| (key.stored(), body.as_deref())).collect();
        let (mut put_kinds, mut put_ids, mut put_bodies) = (Vec::new(), Vec::new(), Vec::new());
        let (mut deleted_kinds, mut deleted_ids) = (Vec::new(), Vec::new());
        for ((kind, id), body) in &stored {
            if let Some(body) = body {
                put_kinds.push(*kind);
                put_ids.push(id.as_str());
                put_bodies.push(*body);
            } else {
                deleted_kinds.push(*kind);
                deleted_ids.push(id.as_str());
            }
        }
        let hash: &[u8] = &batch.last_hash;
        let parameters: [&(dyn ToSql + Sync); 17] = [
            &expected.position,
            &hash,
            &batch.recorded_at,
            &batch.metadata,
            &batch.kinds,
            &batch.schema_versions,
            &batch.keys,
            &batch.merchants,
            &batch.occurred,
            &batch.bodies,
            &batch.hashes,
            &put_kinds,
            &put_ids,
            &put_bodies,
            &deleted_kinds,
            &deleted_ids,
            &expected.epoch,
        ];
        let moved: i64 = self.client.query_one(&self.append, &parameters).await?.get(0);
        Ok(moved == 1)
    }
}

/// Reads a row of [`LOCK_HEAD`].
pub(super) fn read_head(row: &Row) -> Result<Head, String> {
    let hash = row.get::<_, &[u8]>(1).try_into();
    let hash = hash.map_err(|_| "the head's hash is not 32 bytes".to_owned())?;
    Ok(Head { position: row.get(0), hash, epoch: row.get(2) })
}

/// Reads a row of [`READ_EVENTS`].
pub(super) fn read_fact(row: &Row) -> Result<Fact, String> {
    let event = codec::decode(row.get(1), row.get(2), row.get(5)).map_err(|error| error.to_string())?;
    let merchant_id = row.get::<_, &str>(3).parse().map_err(|error| format!("merchant id {error}"))?;
    Ok(Fact { merchant_id, occurred_at: row.get::<_, DateTime<Utc>>(4), event })
}
