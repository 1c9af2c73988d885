//! The stored states, brought from their checkpoint to the head of the log and compared with what the log says.

use std::collections::BTreeMap;

use farthing_core::state::{State, apply, effects};

use super::{Folded, Report};
use crate::record::Record;
use crate::record_batch::RecordBatch;

/// The stored states, by partition, kind and id.
pub(super) struct StoredStates {
    bodies: BTreeMap<(i16, String, String), String>,
}

impl StoredStates {
    pub(super) fn read(rows: &[tokio_postgres::Row]) -> Self {
        let bodies = rows
            .iter()
            .map(|row| ((row.get("partition"), row.get("kind"), row.get("id")), row.get("body")))
            .collect();
        Self { bodies }
    }

    /// Folds the events of `batch` after the checkpoint's `position`. What cannot be folded differs from the fold of the
    /// log, and is found there.
    pub(super) fn fold(&mut self, partition: i16, position: i64, batch: &RecordBatch) {
        for (index, at) in (0..batch.len()).zip(batch.first_position()..) {
            let fact = Record::parse(batch.line(index)).and_then(|record| record.fact());
            let Ok(fact) = fact else { continue };
            if at <= position {
                continue;
            }
            for (key, effect) in effects(&fact) {
                let (kind, id) = key.stored();
                let place = (partition, kind.to_owned(), id);
                let before = self.bodies.remove(&place).and_then(|body| State::from_json(&key, &body).ok());
                if let Ok(Some(state)) = apply(&key, before, effect) {
                    self.bodies.insert(place, state.to_json());
                }
            }
        }
    }

    /// Compares them with the fold of the whole log.
    pub(super) fn compare(mut self, report: &mut Report, folded: &Folded) {
        report.states = folded.values().map(BTreeMap::len).sum();
        for (partition, states) in folded {
            for (key, state) in states {
                let (kind, id) = key.stored();
                match self.bodies.remove(&(partition.number(), kind.to_owned(), id.clone())) {
                    Some(body) if body == state.to_json() => {}
                    Some(_) => {
                        report.find(|| format!("the stored {kind} {id} is not the fold of its events"));
                    }
                    None => report.find(|| format!("the {kind} {id} is not stored")),
                }
            }
        }
        for (_, kind, id) in self.bodies.keys() {
            report.find(|| format!("the stored {kind} {id} follows from no event"));
        }
    }
}
