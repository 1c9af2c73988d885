//! The stored states, brought from their checkpoint to the head of the log and compared with what the log says.

use std::collections::{BTreeMap, BTreeSet};

use farthing_core::state::{State, apply, effects, shape};

use super::{Folded, Report};
use crate::record::Record;
use crate::record_batch::RecordBatch;

/// The stored states of a generation.
pub(super) struct StoredStates {
    /// The partitions in which it is stored.
    partitions: BTreeSet<i16>,
    /// The shapes and the bodies, by partition, kind and id.
    bodies: BTreeMap<(i16, String, String), (i16, String)>,
}

impl StoredStates {
    pub(super) fn read(rows: &[tokio_postgres::Row]) -> Self {
        let stored = |row: &tokio_postgres::Row| {
            let place = (row.get("partition"), row.get("kind"), row.get("id"));
            (place, (row.get("shape"), row.get("body")))
        };
        Self { partitions: BTreeSet::new(), bodies: rows.iter().map(stored).collect() }
    }

    /// The generation is stored in `partition`.
    pub(super) fn add_partition(&mut self, partition: i16) {
        self.partitions.insert(partition);
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
                let before = self.bodies.remove(&place);
                let before = before.and_then(|(shape, body)| State::from_json(&key, shape, &body).ok());
                if let Ok(Some(state)) = apply(&key, before, effect) {
                    self.bodies.insert(place, (shape(), state.to_json()));
                }
            }
        }
    }

    /// Compares them with the fold of the whole log.
    pub(super) fn compare(mut self, report: &mut Report, folded: &Folded) {
        let partitions = std::mem::take(&mut self.partitions);
        for (partition, states) in folded.iter().filter(|(of, _)| partitions.contains(&of.number())) {
            report.states += states.len();
            for (key, state) in states {
                let (kind, id) = key.stored();
                match self.bodies.remove(&(partition.number(), kind.to_owned(), id.clone())) {
                    Some((of, body)) if of == shape() && body == state.to_json() => {}
                    Some((of, body))
                        if of != shape()
                            && State::from_json(key, of, &body).is_ok_and(|stored| stored == *state) => {}
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
