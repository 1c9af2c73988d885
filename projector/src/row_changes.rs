//! Collects the changes of rows within a batch, so that a row that is created and changed in one batch is written once.

use std::collections::BTreeMap;

/// The change of a row of type `R`.
pub(crate) trait Change<R>: Default {
    /// Applies the change to a row that is new in this batch.
    fn apply(self, row: &mut R);

    /// Adds a later change of the same row.
    fn merge(&mut self, later: Self);
}

/// Changes the row `id`: in `new` when it is created in this batch, otherwise in `changed`.
pub(crate) fn change<I: Ord, R, C: Change<R>>(
    new: &mut BTreeMap<I, R>,
    changed: &mut BTreeMap<I, C>,
    id: I,
    change: C,
) {
    match new.get_mut(&id) {
        Some(row) => change.apply(row),
        None => changed.entry(id).or_default().merge(change),
    }
}
