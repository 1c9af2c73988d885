//! Loads states from `ledger.state`, together with the position of the log that they are true at.

use std::collections::HashMap;

use tokio_postgres::{Client, Statement};

use super::connect::redacted;
use farthing_core::partition::Partition;
use farthing_core::state::{State, StateKey};

/// The states and the head they belong to: one statement, hence one snapshot.
pub(super) const LOAD: &str = "\
SELECT h.position, k.n, s.body
FROM ledger.heads AS h
CROSS JOIN unnest($1::text[], $2::text[]) WITH ORDINALITY AS k(kind, id, n)
LEFT JOIN ledger.state AS s ON s.partition = h.partition AND s.kind = k.kind AND s.id = k.id
WHERE h.partition = $3";

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
    load_prepared(client, &statement, partition, keys).await.map(|(_, states)| states)
}

/// As [`load`], with the position of the head in the same snapshot.
pub(super) async fn load_prepared(
    client: &Client,
    statement: &Statement,
    partition: Partition,
    keys: &[StateKey],
) -> Result<(i64, Vec<Option<State>>), Error> {
    let stored: Vec<_> = keys.iter().map(StateKey::stored).collect();
    let kinds: Vec<&str> = stored.iter().map(|(kind, _)| *kind).collect();
    let ids: Vec<&str> = stored.iter().map(|(_, id)| id.as_str()).collect();
    let rows = client.query(statement, &[&kinds, &ids, &partition.number()]).await?;
    let mut position = 0;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        position = row.get("position");
        let index = usize::try_from(row.get::<_, i64>("n")).unwrap_or(0).saturating_sub(1);
        found.insert(index, row.get::<_, Option<&str>>("body"));
    }
    let mut states = Vec::with_capacity(keys.len());
    for (index, (key, (kind, id))) in keys.iter().zip(stored).enumerate() {
        let body = found.get(&index).copied().flatten();
        let state = body.map(|body| State::from_json(key, body)).transpose();
        states.push(state.map_err(|source| Error::Unreadable { kind, id, source })?);
    }
    Ok((position, states))
}
