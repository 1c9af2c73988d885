//! Postgres as the store of a partition: a leader's connection and its statements, prepared once.

use std::sync::Arc;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::append_statement;
use super::batch::{AppendBatch, EventId};
use super::group_commit::GroupCommit;
use super::store::{Head, LogSession, LogStore, StateChanges, StoreError, StoreResult};
use crate::connect::{Role, redacted};
use crate::reader::{self, READ_BYTES};
use crate::{claims, connect, directory, record, states};
use farthing_core::event::Fact;
use farthing_core::idempotency::{ClaimId, StoredClaim};
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey, generation, shape};

/// Settings of a session that appends, besides those for statements that find a few rows by their keys.
const SETTINGS: &str = "\
SET synchronous_commit = on;
SET statement_timeout = '10s'";

/// Sets what a session depends on that appends.
pub(super) async fn set_up(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(connect::BY_KEYS).await?;
    client.batch_execute(SETTINGS).await
}

/// Whether the partitions are on several servers: a transaction over partitions, or of a partition and the directory, would
/// be one over servers.
const IS_DISTRIBUTED: &str = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')";

const LEAD: &str = "\
SELECT head_position, head_hash, head_epoch, head_shape, stored_position FROM ledger.lead($1, $2, $3, $4)";

const RESOLVE: &str = "SELECT ledger.resolve($1, $2, $3, $4)";

/// A partition of the log, for one gateway.
#[derive(Debug)]
pub(super) struct PostgresStore {
    pub(super) database_url: String,
    pub(super) partition: Partition,
    pub(super) role: Role,
    /// The gateway's name in the lease.
    pub(super) gateway: String,
    /// Commits for all partitions of this process that are on one server; `None` if each commits by itself.
    pub(super) group: Option<GroupCommit>,
}

/// A connection of a leader.
#[derive(Debug)]
pub(super) struct PostgresSession {
    partition: Partition,
    gateway: String,
    client: Client,
    lead: Statement,
    read: Statement,
    load: Statement,
    find_claims: Statement,
    append: Statement,
    /// Writes the entries of the directory; `None` if the append does.
    add_entries: Option<Statement>,
    store_states: Statement,
    resolve: Statement,
    group: Option<GroupCommit>,
}

impl LogStore for PostgresStore {
    type Session = PostgresSession;

    async fn open(&self) -> StoreResult<PostgresSession> {
        let client = connect::connect(&self.database_url, self.role).await?;
        set_up(&client).await?;
        let (lead, read, load_states, find_claims, append, store_states, resolve) = tokio::try_join!(
            client.prepare(LEAD),
            client.prepare(reader::READ),
            client.prepare(states::LOAD),
            client.prepare(claims::FIND),
            client.prepare(append_statement::APPEND),
            client.prepare(states::STORE),
            client.prepare(RESOLVE),
        )?;
        let is_distributed: bool = client.query_one(IS_DISTRIBUTED, &[]).await?.try_get(0)?;
        let add_entries = if is_distributed { Some(client.prepare(directory::ADD).await?) } else { None };
        Ok(PostgresSession {
            partition: self.partition,
            gateway: self.gateway.clone(),
            client,
            lead,
            read,
            load: load_states,
            find_claims,
            append,
            add_entries,
            store_states,
            resolve,
            group: self.group.clone().filter(|_| !is_distributed),
        })
    }
}

impl LogSession for PostgresSession {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn appends_elsewhere(&self) -> bool {
        self.group.is_some()
    }

    async fn lead(&self) -> StoreResult<Option<(Head, i64)>> {
        let (shape, generation) = (i64::from(shape()), generation());
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&self.partition.number(), &self.gateway, &shape, &generation];
        let row = self.client.query_opt(&self.lead, &parameters).await?;
        row.map(|row| read_head(&row)).transpose()
    }

    async fn read(&self, position: i64, limit: i64) -> StoreResult<Vec<Fact>> {
        let batches = self
            .client
            .query(&self.read, &[&self.partition.number(), &position, &limit, &READ_BYTES])
            .await?;
        let mut facts = Vec::new();
        for row in &batches {
            let batch = reader::batch(row).map_err(|error| StoreError::Other(error.to_string()))?;
            let expected = position + 1 + i64::try_from(facts.len()).unwrap_or(i64::MAX);
            if batch.first_position() > expected {
                return Err(StoreError::Other(format!("the event at position {expected} is not in the log")));
            }
            // The first batch may have events up to `position` too.
            for index in (0..batch.len()).filter(|index| batch.position_of(*index) > position) {
                let fact = record::decode(batch.line(index));
                facts.push(fact.map_err(|error| StoreError::Other(error.to_string()))?);
            }
        }
        Ok(facts)
    }

    async fn load(&self, keys: &[StateKey]) -> StoreResult<Vec<Option<State>>> {
        let loaded = states::load_prepared(&self.client, &self.load, self.partition, keys).await;
        loaded.map_err(|error| match error {
            states::Error::Unreadable { .. } => StoreError::Unreadable(error.to_string()),
            states::Error::Postgres(_) => StoreError::Other(error.to_string()),
        })
    }

    async fn find_claims(&self, ids: &[ClaimId]) -> StoreResult<Vec<(ClaimId, StoredClaim)>> {
        Ok(claims::find_prepared(&self.client, &self.find_claims, self.partition, ids).await?)
    }

    async fn append(&self, expected: Head, batch: Arc<AppendBatch>) -> StoreResult<bool> {
        let (client, append, partition) = (&self.client, &self.append, self.partition);
        match (&self.group, &self.add_entries) {
            (Some(group), _) => group.append(partition, expected, batch).await,
            (None, Some(add)) => {
                let statements = (add, append);
                append_statement::execute_after_entries(client, statements, partition, expected, &batch).await
            }
            (None, None) => append_statement::execute(client, append, partition, expected, &batch).await,
        }
    }

    async fn store_states(&self, epoch: i64, position: i64, changes: &StateChanges) -> StoreResult<bool> {
        let at = (epoch, position);
        Ok(states::store_prepared(&self.client, &self.store_states, self.partition, at, changes).await?)
    }

    async fn resolve(&self, event: &EventId, epoch: i64) -> StoreResult<bool> {
        let parameters: [&(dyn ToSql + Sync); 4] =
            [&self.partition.number(), &event.position, &event.hash, &epoch];
        Ok(self.client.query_one(&self.resolve, &parameters).await?.try_get(0)?)
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let message = format!("Postgres: {}", redacted(&error));
        match error.code() {
            Some(code) if is_about_data(code) => Self::Data(message),
            Some(code) if is_conflict(code) => Self::Conflict(message),
            Some(_) | None => Self::Other(message),
        }
    }
}

/// Whether Postgres refused the data: the SQLSTATE classes 22 (data), 23 (constraints) and 54
/// (limits).
fn is_about_data(code: &SqlState) -> bool {
    ["22", "23", "54"].iter().any(|class| code.code().starts_with(class))
}

/// Whether Postgres undid the statement because of another transaction.
fn is_conflict(code: &SqlState) -> bool {
    [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(code)
}

/// Reads the head and the position of the checkpoint of a row of [`LEAD`]. Fails if this program cannot lead the
/// partition.
fn read_head(row: &Row) -> StoreResult<(Head, i64)> {
    let Some(stored) = row.try_get("stored_position")? else {
        let (theirs, own) = (row.try_get::<_, i64>("head_shape")?, shape());
        return Err(StoreError::Other(if theirs > i64::from(own) {
            format!("a newer program leads the partition: its states have shape {theirs}, this one's {own}")
        } else {
            format!("the states of generation {} are not built yet", generation())
        }));
    };
    let hash = row.try_get::<_, &[u8]>("head_hash")?.try_into();
    let hash = hash.map_err(|_| StoreError::Other("the head's hash is not 32 bytes".to_owned()))?;
    let head = Head { position: row.try_get("head_position")?, hash, epoch: row.try_get("head_epoch")? };
    Ok((head, stored))
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
        assert!(is_conflict(&SqlState::T_R_DEADLOCK_DETECTED));
        assert!(!is_conflict(&SqlState::ADMIN_SHUTDOWN));
    }
}
