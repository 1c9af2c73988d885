//! Compares the stored states of a partition, which are those of their checkpoint, with the states folded up to it.

use std::collections::{BTreeMap, BTreeSet};

use farthing_core::state::{State, generation, shape};
use futures_util::TryStreamExt as _;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use super::Error;
use super::fold::Fold;
use super::verdict::{Check, Finding, Place, Tallies, difference};

/// The stored states of partition $1 and generation $2.
const STATES: &str =
    "SELECT kind, id, shape, body FROM ledger.state WHERE partition = $1 AND generation = $2";

/// The position of the checkpoint of partition $1 and generation $2.
pub(super) const CHECKPOINT: &str =
    "SELECT position FROM ledger.checkpoints WHERE partition = $1 AND generation = $2";

/// Compares the stored states with those of `fold`, which was folded up to the checkpoint at `place`. The stored ones are
/// read one by one, in the snapshot that has the checkpoint.
pub(super) async fn compare(
    snapshot: &Transaction<'_>,
    tallies: &mut Tallies,
    fold: &Fold,
    place: Place,
) -> Result<(), Error> {
    let mut missing: BTreeMap<(&str, String), _> = BTreeMap::new();
    for (key, state) in &fold.states {
        missing.insert(key.stored(), (key, state));
    }
    tallies.checked(Check::StoredStates, u64::try_from(missing.len()).unwrap_or(u64::MAX));
    let kinds: BTreeSet<&str> = missing.keys().map(|(kind, _)| *kind).collect();
    let parameters: [&(dyn ToSql + Sync); 2] = [&place.partition.number(), &generation()];
    let rows = snapshot.query_raw(STATES, parameters).await?;
    let mut rows = std::pin::pin!(rows);
    let mut find = |text: String, expected: &str, found: &str| {
        let (expected, found) = difference(expected, found);
        let Place { partition, position } = place;
        tallies.find(Check::StoredStates, Finding { partition, position, text, expected, found });
    };
    while let Some(row) = rows.try_next().await? {
        let (kind, id): (&str, &str) = (row.try_get("kind")?, row.try_get("id")?);
        let (of, body): (i16, &str) = (row.try_get("shape")?, row.try_get("body")?);
        let folded = kinds.get(kind).and_then(|kind| missing.remove(&(*kind, id.to_owned())));
        let Some((key, state)) = folded else {
            find(format!("the stored {kind} {id} follows from no event"), "", body);
            continue;
        };
        let json = state.to_json();
        let is_equal = if of == shape() {
            body == json
        } else {
            State::from_json(key, of, body).is_ok_and(|stored| stored == *state)
        };
        if !is_equal {
            find(format!("the stored {kind} {id} is not the fold of its events"), &json, body);
        }
    }
    for ((kind, id), (_, state)) in missing {
        find(format!("the {kind} {id} is not stored"), &state.to_json(), "");
    }
    Ok(())
}
