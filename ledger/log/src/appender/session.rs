//! Postgres as the store of a log: the writing connection and its statements, prepared once.

use serde::Serialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::batch::{AppendBatch, EventId};
use super::store::{Head, LogSession, LogStore, StoreError, StoreResult};
use crate::connect::{Role, redacted};
use crate::reader;
use crate::{claims, connect, record, refold, states};
use farthing_core::command::PersonalChange;
use farthing_core::event::{ContactPart, Fact};
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::ids::CustomerId;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};

/// The only partition so far.
const PARTITION: i16 = Partition::new(0).number();

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

const LOCK_HEAD: &str = "\
SELECT position, hash, epoch, shape FROM ledger.heads WHERE partition = $1 FOR UPDATE";

/// Appends a decided batch if the head is still at the position it was decided at. One statement is one transaction and
/// one round trip.
const APPEND: &str = "\
SELECT ledger.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17::text::json)";

/// Increments the epoch, which fences an append that was given up: if it still arrives, it writes nothing.
const NEXT_EPOCH: &str = "UPDATE ledger.heads SET epoch = epoch + 1 WHERE partition = $1";

/// Whether a batch begins with this very event.
const IS_RECORDED: &str = "\
SELECT EXISTS (SELECT FROM ledger.batches
               WHERE partition = $1 AND first_position = $2 AND substring(hashes FROM 1 FOR 32) = $3)";

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
    read_head: Statement,
    read: Statement,
    load: Statement,
    append: Statement,
    claims: claims::Statements,
}

impl LogStore for PostgresStore {
    type Session = PostgresSession;

    async fn open(&self) -> StoreResult<PostgresSession> {
        let client = connect::connect(&self.database_url, self.role).await?;
        client.batch_execute(SETTINGS).await?;
        let (lock_head, read_head, read, load, append, claims) = tokio::try_join!(
            client.prepare(LOCK_HEAD),
            client.prepare(reader::READ_HEAD),
            client.prepare(reader::READ),
            client.prepare(states::LOAD),
            client.prepare(APPEND),
            claims::Statements::prepare(&client),
        )?;
        Ok(PostgresSession { client, lock_head, read_head, read, load, append, claims })
    }
}

impl LogSession for PostgresSession {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn head_position(&self) -> StoreResult<i64> {
        Ok(self.client.query_one(&self.read_head, &[&PARTITION]).await?.get(0))
    }

    async fn begin(&self) -> StoreResult<Head> {
        let ((), head) = tokio::try_join!(
            self.client.batch_execute("BEGIN"),
            self.client.query_one(&self.lock_head, &[&PARTITION])
        )?;
        read_head(&head)
    }

    async fn begin_and_read(&self, position: i64, limit: i64) -> StoreResult<(Head, Vec<Fact>)> {
        let after: [&(dyn ToSql + Sync); 3] = [&PARTITION, &position, &limit];
        let ((), head, batches) = tokio::try_join!(
            self.client.batch_execute("BEGIN"),
            self.client.query_one(&self.lock_head, &[&PARTITION]),
            self.client.query(&self.read, &after),
        )?;
        let mut facts = Vec::new();
        for row in &batches {
            let batch = reader::batch(row).map_err(|error| StoreError::Other(error.to_string()))?;
            for index in 0..batch.len() {
                let fact = record::decode(batch.line(index));
                facts.push(fact.map_err(|error| StoreError::Other(error.to_string()))?);
            }
        }
        Ok((read_head(&head)?, facts))
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
        let (fact_keys, fact_positions) = &batch.indexed;
        let personal = personal_changes(&batch.personal);
        let parameters: [&(dyn ToSql + Sync); 17] = [
            &PARTITION,
            &expected.position,
            &expected.epoch,
            &refold::VERSION,
            &batch.count,
            &batch.recorded_at,
            &batch.writer,
            &batch.events.as_bytes(),
            &batch.hashes,
            fact_keys,
            fact_positions,
            &put_kinds,
            &put_ids,
            &put_bodies,
            &deleted_kinds,
            &deleted_ids,
            &personal,
        ];
        Ok(self.client.query_one(&self.append, &parameters).await?.get(0))
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
        Ok(self.client.query_one(IS_RECORDED, &[&PARTITION, &event.position, &event.hash]).await?.get(0))
    }

    async fn raise_epoch(&self) -> StoreResult<()> {
        self.client.execute(NEXT_EPOCH, &[&PARTITION]).await?;
        Ok(())
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

/// Whether Postgres refused the data: the SQLSTATE classes 22 (data), 23 (constraints) and 54
/// (limits).
fn is_about_data(code: &SqlState) -> bool {
    ["22", "23", "54"].iter().any(|class| code.code().starts_with(class))
}

/// A change of personal data, as `ledger.append` takes it.
#[derive(Debug, Serialize)]
struct PersonalChangeRow<'a> {
    customer_id: CustomerId,
    erase: bool,
    /// The parts that are written; null clears one.
    parts: &'a [ContactPart],
    first_name: Option<&'a str>,
    last_name: Option<&'a str>,
    email: Option<&'a str>,
    phone: Option<&'a str>,
}

/// The changes as JSON; `None` if there are none.
fn personal_changes(changes: &[(CustomerId, PersonalChange)]) -> Option<String> {
    if changes.is_empty() {
        return None;
    }
    let rows: Vec<_> = changes.iter().map(|(id, change)| PersonalChangeRow::new(*id, change)).collect();
    Some(serde_json::to_string(&rows).expect("texts and flags are written as JSON"))
}

impl<'a> PersonalChangeRow<'a> {
    fn new(customer_id: CustomerId, change: &'a PersonalChange) -> Self {
        let (erase, parts, data) = match change {
            PersonalChange::Write { parts, data } => (false, parts.as_slice(), Some(data)),
            PersonalChange::Erase => (true, [].as_slice(), None),
        };
        Self {
            customer_id,
            erase,
            parts,
            first_name: data.and_then(|data| data.first_name.as_deref()),
            last_name: data.and_then(|data| data.last_name.as_deref()),
            email: data.and_then(|data| data.email.as_deref()),
            phone: data.and_then(|data| data.phone.as_deref()),
        }
    }
}

/// Reads a row of [`LOCK_HEAD`]. Fails if the log's states have another program's shape: this one must not append.
fn read_head(row: &Row) -> StoreResult<Head> {
    let shape: i64 = row.get("shape");
    if shape != refold::VERSION {
        let why = format!("the log's states have shape {shape}, this program's have {}", refold::VERSION);
        return Err(StoreError::Other(why));
    }
    let hash = row.get::<_, &[u8]>("hash").try_into();
    let hash = hash.map_err(|_| StoreError::Other("the head's hash is not 32 bytes".to_owned()))?;
    Ok(Head { position: row.get("position"), hash, epoch: row.get("epoch") })
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
