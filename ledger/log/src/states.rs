//! Loads states from `ledger.state`, and stores them there: as they were at the checkpoint of their partition, a moment
//! ago. What they are now, the leader of the partition knows.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::connect::redacted;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey, generation, shape};

/// The stored states of a partition and of this program's generation, by the places of their keys in the parameters.
pub(super) const LOAD: &str = "\
SELECT k.n, s.shape, s.body
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(kind, id, n)
CROSS JOIN LATERAL (
    SELECT l.shape, l.body FROM ledger.state AS l
    WHERE l.partition = $3 AND l.generation = $4 AND l.kind = k.kind AND l.id = k.id) AS s";

/// Stores the changed states of a partition, of this program's generation.
pub(super) const STORE: &str = "SELECT ledger.store_states($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

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
    let rows = client.query(statement, &[&kinds, &ids, &partition.number(), &generation()]).await?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let index = usize::try_from(row.get::<_, i64>("n")).unwrap_or(0).saturating_sub(1);
        found.insert(index, (row.get::<_, i16>("shape"), row.get::<_, &str>("body")));
    }
    let mut states = Vec::with_capacity(keys.len());
    for (index, (key, (kind, id))) in keys.iter().zip(stored).enumerate() {
        let stored = found.get(&index).copied();
        let state = stored.map(|(shape, body)| State::from_json(key, shape, body)).transpose();
        states.push(state.map_err(|source| Error::Unreadable { kind, id, source })?);
    }
    Ok(states)
}

/// Stores `changes`, with which the states of this program's generation are as they are at `position`, by the prepared
/// statement [`STORE`]. Returns whether they are stored: not if the epoch of the checkpoint has moved.
pub(super) async fn store_prepared(
    client: &Client,
    statement: &Statement,
    partition: Partition,
    (epoch, position): (i64, i64),
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
    let parameters: [&(dyn ToSql + Sync); 10] = [
        &partition.number(),
        &generation(),
        &shape(),
        &epoch,
        &position,
        &put_kinds,
        &put_ids,
        &put_bodies,
        &deleted_kinds,
        &deleted_ids,
    ];
    client.query_one(statement, &parameters).await?.try_get(0)
}
