//! Loads states from `ledger.state`: as they were at the checkpoint of their partition, a moment ago. What they are now,
//! the leader of the partition knows.

use std::collections::HashMap;

use tokio_postgres::{Client, Statement};

use super::connect::redacted;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};

/// The stored states of a partition, by the places of their keys in the parameters.
pub(super) const LOAD: &str = "\
SELECT k.n, s.body
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(kind, id, n)
CROSS JOIN LATERAL (
    SELECT l.body FROM ledger.state AS l WHERE l.partition = $3 AND l.kind = k.kind AND l.id = k.id) AS s";

/// Why states could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres does not answer, or refuses.
    #[error("Postgres: {}", redacted(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// A stored state that this program cannot read.
    #[error("the stored state of {kind} {id} is unreadable: {source}")]
    Unreadable {
        /// The state's kind.
        kind: &'static str,
        /// The state's id.
        id: String,
        /// Why it cannot be read.
        source: serde_json::Error,
    },
}

/// Loads the states of `keys`, all of one partition, in the order of `keys`; `None` for a key without a state.
pub async fn load(
    client: &Client,
    partition: Partition,
    keys: &[StateKey],
) -> Result<Vec<Option<State>>, Error> {
    let statement = client.prepare(LOAD).await?;
    load_prepared(client, &statement, partition, keys).await
}

/// As [`load`], by the prepared statement [`LOAD`].
pub(super) async fn load_prepared(
    client: &Client,
    statement: &Statement,
    partition: Partition,
    keys: &[StateKey],
) -> Result<Vec<Option<State>>, Error> {
    let stored: Vec<_> = keys.iter().map(StateKey::stored).collect();
    let kinds: Vec<&str> = stored.iter().map(|(kind, _)| *kind).collect();
    let ids: Vec<&str> = stored.iter().map(|(_, id)| id.as_str()).collect();
    let rows = client.query(statement, &[&kinds, &ids, &partition.number()]).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let index = usize::try_from(row.get::<_, i64>("n")).unwrap_or(0).saturating_sub(1);
        found.insert(index, row.get::<_, &str>("body"));
    }
    let mut states = Vec::with_capacity(keys.len());
    for (index, (key, (kind, id))) in keys.iter().zip(stored).enumerate() {
        let body = found.get(&index).copied();
        let state = body.map(|body| State::from_json(key, body)).transpose();
        states.push(state.map_err(|source| Error::Unreadable { kind, id, source })?);
    }
    Ok(states)
}
