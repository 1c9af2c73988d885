//! The file of a table in one of the formats, with its rows and its sums.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context as _, Result};
use chrono::{DateTime, SecondsFormat, Utc};
use farthing_core::wide_sum::WideSum;
use farthing_log::audit::export::{Column, Kind, Table, Value};
use rust_decimal::Decimal;

use super::csv_file::CsvFile;
use super::folder::Folder;
use super::hashed_file::{HashedFile, Stored};
use super::ndjson_file::NdjsonFile;
use super::parquet_file::ParquetFile;
use super::{Format, manifest};

/// The most fractional digits of a value.
pub(super) const SCALE: u32 = farthing_core::money::SCALE;

/// Writes rows in a format.
pub(super) trait RowWriter {
    /// Writes a row, whose values are of the kinds of the columns.
    fn row(&mut self, row: &[Value]) -> io::Result<()>;

    /// Writes what is left.
    fn finish(self: Box<Self>) -> io::Result<Stored>;
}

/// A file that is being written.
pub(super) struct TableFile {
    table: Table,
    file: String,
    writer: Box<dyn RowWriter>,
    rows: u64,
    /// The sum of each column; `None` for one that has no sum.
    sums: Vec<Option<WideSum>>,
}

impl TableFile {
    /// Begins the file of a table.
    pub(super) fn create(folder: &Folder, format: Format, table: Table) -> Result<Self> {
        let extension = match format {
            Format::Csv | Format::Focus => "csv",
            Format::Parquet => "parquet",
            Format::Ndjson => "ndjson",
        };
        let (file, columns) = (format!("{}.{extension}", table.name()), table.columns());
        let begin = || -> io::Result<Box<dyn RowWriter>> {
            let out = HashedFile::new(folder.file(&file)?);
            let writer: Box<dyn RowWriter> = match format {
                Format::Csv | Format::Focus => Box::new(CsvFile::new(out, columns)?),
                Format::Parquet => Box::new(ParquetFile::new(out, table)?),
                Format::Ndjson => Box::new(NdjsonFile::new(out, columns)),
            };
            Ok(writer)
        };
        let writer = begin().with_context(|| format!("cannot write {file}"))?;
        let sums = columns.iter().map(|column| has_sum(column).then(WideSum::default)).collect();
        Ok(Self { table, file, writer, rows: 0, sums })
    }

    pub(super) const fn table(&self) -> Table {
        self.table
    }

    pub(super) fn row(&mut self, row: &[Value]) -> io::Result<()> {
        self.rows += 1;
        for (sum, value) in self.sums.iter_mut().zip(row) {
            let (Some(sum), Some(value)) = (sum, decimal(value)) else { continue };
            *sum = WideSum::try_from(value)
                .and_then(|value| sum.plus(value))
                .map_err(|error| io::Error::other(format!("a sum with {value}: it {error}")))?;
        }
        self.writer.row(row)
    }

    pub(super) fn finish(self) -> io::Result<manifest::File> {
        let Stored { bytes, sha256 } = self.writer.finish()?;
        let columns = self.table.columns().iter().map(|column| column.name.to_owned());
        let sums: BTreeMap<_, _> =
            columns.zip(self.sums).filter_map(|(name, sum)| Some((name, sum?.to_string()))).collect();
        Ok(manifest::File { table: self.table, name: self.file, rows: self.rows, bytes, sha256, sums })
    }
}

fn has_sum(column: &Column) -> bool {
    match column.kind {
        Kind::Amount | Kind::Quantity => true,
        Kind::Name | Kind::Text | Kind::Json | Kind::Integer | Kind::Time | Kind::Second => false,
    }
}

fn decimal(value: &Value) -> Option<Decimal> {
    match value {
        Value::Amount(amount) => Some(amount.decimal()),
        Value::Quantity(quantity) => Some(*quantity),
        Value::Null | Value::Text(_) | Value::Integer(_) | Value::Time(_) => None,
    }
}

/// A decimal with ten fractional digits. One that has more is an error: nothing is rounded.
pub(super) fn ten_digits(value: Decimal) -> io::Result<String> {
    if value.normalize().scale() > SCALE {
        return Err(io::Error::other(format!("{value} has more than {SCALE} fractional digits")));
    }
    Ok(format!("{value:.10}"))
}

/// A time in the text formats.
pub(super) fn time(kind: Kind, at: DateTime<Utc>) -> String {
    let precision = if kind == Kind::Second { SecondsFormat::Secs } else { SecondsFormat::Micros };
    at.to_rfc3339_opts(precision, true)
}
