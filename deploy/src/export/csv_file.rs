//! Comma-separated values by RFC 4180: UTF-8, a header, lines that end with CR LF. No value is an empty field.
//!
//! Invariant: no field begins a formula in a spreadsheet. See decision 0090.

use std::borrow::Cow;
use std::io;

use csv::Writer;
use farthing_log::audit::export::{Column, Kind, Value};

use super::hashed_file::{HashedFile, Stored};
use super::table_file::{RowWriter, ten_digits, time};
use crate::csv_text::{self, no_formula};

/// A CSV file that is being written.
pub(super) struct CsvFile {
    writer: Writer<HashedFile>,
    columns: &'static [Column],
}

impl CsvFile {
    /// Begins the file with its header.
    pub(super) fn new(out: HashedFile, columns: &'static [Column]) -> io::Result<Self> {
        let mut writer = csv_text::writer(out);
        writer.write_record(columns.iter().map(|column| column.name))?;
        Ok(Self { writer, columns })
    }
}

impl RowWriter for CsvFile {
    fn row(&mut self, row: &[Value]) -> io::Result<()> {
        for (column, value) in self.columns.iter().zip(row) {
            let field = match value {
                Value::Null => Cow::Borrowed(""),
                Value::Text(text) if column.kind == Kind::Text => no_formula(text),
                Value::Text(text) => Cow::Borrowed(text.as_str()),
                Value::Integer(number) => Cow::Owned(number.to_string()),
                Value::Amount(amount) => Cow::Owned(ten_digits(amount.decimal())?),
                Value::Quantity(quantity) => Cow::Owned(ten_digits(*quantity)?),
                Value::Time(at) => Cow::Owned(time(column.kind, *at)),
            };
            self.writer.write_field(field.as_bytes())?;
        }
        Ok(self.writer.write_record(None::<&[u8]>)?)
    }

    fn finish(self: Box<Self>) -> io::Result<Stored> {
        self.writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?.finish()
    }
}
