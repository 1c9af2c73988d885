//! Postgres as the store of a log: the writing connection and its statements, prepared once.

use chrono::{DateTime, Utc};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::batch::{AppendBatch, EventId};
use super::store::{Head, LogSession, LogStore, StoreError, StoreResult};
use crate::connect::{Role, redacted};
use crate::{claims, connect, states};
use farthing_core::command::PersonalChange;
use farthing_core::event::{ContactPart, Fact, codec};
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::ids::CustomerId;
use farthing_core::state::{State, StateKey};

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

const LOCK_HEAD: &str = "SELECT position, hash, epoch FROM ledger.head FOR UPDATE";

const PEEK_HEAD: &str = "SELECT position FROM ledger.head";

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
const NEXT_EPOCH: &str = "UPDATE ledger.head SET epoch = epoch + 1";

const IS_RECORDED: &str = "SELECT EXISTS (SELECT FROM ledger.events WHERE position = $1 AND hash = $2)";

/// The database of the log, for one role.
#[derive(Debug)]
pub(super) struct PostgresStore {
    pub(super) database_url: String,
    pub(super) role: Role,
}

/// A connection that writes.
#[derive(Debug)]
pub(super) struct PostgresSession {
    client: Client,
    lock_head: Statement,
    peek_head: Statement,
    read_events: Statement,
    load: Statement,
    append: Statement,
    claims: claims::Statements,
    put_personal: Statement,
    erase_personal: Statement,
}

impl LogStore for PostgresStore {
    type Session = PostgresSession;

    async fn open(&self) -> StoreResult<PostgresSession> {
        let client = connect::connect(&self.database_url, self.role).await?;
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
        Ok(PostgresSession {
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
}

impl LogSession for PostgresSession {
    type Event = Row;

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn head_position(&self) -> StoreResult<i64> {
        Ok(self.client.query_one(&self.peek_head, &[]).await?.get(0))
    }

    async fn begin(&self) -> StoreResult<Head> {
        let ((), head) = tokio::try_join!(
            self.client.batch_execute("BEGIN"),
            self.client.query_one(&self.lock_head, &[])
        )?;
        read_head(&head)
    }

    async fn begin_and_read(&self, position: i64, limit: i64) -> StoreResult<(Head, Vec<Row>)> {
        let after: [&(dyn ToSql + Sync); 2] = [&position, &limit];
        let ((), head, events) = tokio::try_join!(
            self.client.batch_execute("BEGIN"),
            self.client.query_one(&self.lock_head, &[]),
            self.client.query(&self.read_events, &after),
        )?;
        Ok((read_head(&head)?, events))
    }

    fn fact(row: &Row) -> Result<Fact, String> {
        let event = codec::decode(row.get(1), row.get(2), row.get(5)).map_err(|error| error.to_string())?;
        let merchant_id = row.get::<_, &str>(3).parse().map_err(|error| format!("merchant id {error}"))?;
        Ok(Fact { merchant_id, occurred_at: row.get::<_, DateTime<Utc>>(4), event })
    }

    async fn load(&self, keys: &[StateKey]) -> StoreResult<(i64, Vec<Option<State>>)> {
        let loaded = states::load_prepared(&self.client, &self.load, keys).await;
        // Not the data of a command, but a state, is what cannot be read.
        loaded.map_err(|error| StoreError::Other(error.to_string()))
    }

    async fn find_claims(&self, ids: &[ClaimId]) -> StoreResult<Vec<(ClaimId, StoredClaim)>> {
        Ok(self.claims.find(&self.client, ids).await?)
    }

    async fn write_claims(&self, changes: &claims::Changes) -> StoreResult<()> {
        Ok(self.claims.write(&self.client, changes).await?)
    }

    async fn change_personal(&self, id: CustomerId, change: &PersonalChange) -> StoreResult<()> {
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

    async fn append(
        &self,
        expected: Head,
        batch: &AppendBatch,
        changes: &[(StateKey, Option<String>)],
    ) -> StoreResult<bool> {
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

    async fn append_and_commit(
        &self,
        expected: Head,
        batch: &AppendBatch,
        changes: &[(StateKey, Option<String>)],
    ) -> StoreResult<bool> {
        // Both are sent before either is answered: one round trip.
        let (appended, committed) = tokio::join!(self.append(expected, batch, changes), self.commit());
        let appended = appended?;
        committed?;
        Ok(appended)
    }

    async fn is_recorded(&self, event: &EventId) -> StoreResult<bool> {
        Ok(self.client.query_one(IS_RECORDED, &[&event.position, &event.hash]).await?.get(0))
    }

    async fn raise_epoch(&self) -> StoreResult<()> {
        Ok(self.client.batch_execute(NEXT_EPOCH).await?)
    }

    async fn commit(&self) -> StoreResult<()> {
        Ok(self.client.batch_execute("COMMIT").await?)
    }

    async fn roll_back(&self) -> StoreResult<()> {
        Ok(self.client.batch_execute("ROLLBACK").await?)
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let message = format!("Postgres: {}", redacted(&error));
        if error.code().is_some_and(is_about_data) { Self::Data(message) } else { Self::Other(message) }
    }
}

/// Whether Postgres refused the data: the SQLSTATE classes 22 (data), 23 (constraints), 42 (access rules) and 54
/// (limits).
fn is_about_data(code: &SqlState) -> bool {
    ["22", "23", "42", "54"].iter().any(|class| code.code().starts_with(class))
}

/// Reads a row of [`LOCK_HEAD`].
fn read_head(row: &Row) -> StoreResult<Head> {
    let hash = row.get::<_, &[u8]>(1).try_into();
    let hash = hash.map_err(|_| StoreError::Other("the head's hash is not 32 bytes".to_owned()))?;
    Ok(Head { position: row.get(0), hash, epoch: row.get(2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_about_the_data_are_blamed_on_a_command() {
        for code in [SqlState::UNIQUE_VIOLATION, SqlState::NUMERIC_VALUE_OUT_OF_RANGE] {
            assert!(is_about_data(&code), "{code:?}");
        }
        for code in [SqlState::ADMIN_SHUTDOWN, SqlState::CONNECTION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED]
        {
            assert!(!is_about_data(&code), "{code:?}");
        }
    }
}
