//! The table `events`: a row for each event, with its place in the log and its hash.

use farthing_core::secret::hex;

use super::super::partition_reader::Line;
use super::table::{Column, Kind, Value};
use crate::record::Record;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column::required("partition", Kind::Integer),
    Column::required("position", Kind::Integer),
    Column::required("kind", Kind::Name),
    Column::required("version", Kind::Integer),
    Column::required("key", Kind::Text),
    Column::required("merchant_id", Kind::Name),
    Column::required("occurred_at", Kind::Time),
    Column::required("recorded_at", Kind::Time),
    Column::required("writer", Kind::Text),
    Column::required("hash", Kind::Name),
    Column::required("body", Kind::Json),
];

/// The row of an event.
pub(super) fn row(line: &Line<'_>, record: &Record<'_>) -> Vec<Value> {
    vec![
        Value::Integer(line.place.partition.number().into()),
        Value::Integer(line.place.position),
        Value::name(record.kind),
        Value::Integer(record.version.into()),
        Value::name(record.key),
        Value::name(record.merchant),
        Value::Time(record.occurred_at),
        Value::Time(line.recorded_at),
        Value::name(line.writer),
        Value::Text(hex(line.hash)),
        Value::name(record.body()),
    ]
}
