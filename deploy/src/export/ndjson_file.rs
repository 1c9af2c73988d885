//! One JSON object a line. Amounts and counts with a fraction are strings, so that no reader makes floats of them.

use std::io::{self, Write as _};

use farthing_log::audit::export::{Column, Kind, Value};

use super::hashed_file::{HashedFile, Stored};
use super::table_file::{RowWriter, ten_digits, time};

/// An NDJSON file that is being written.
pub(super) struct NdjsonFile {
    out: HashedFile,
    columns: &'static [Column],
    line: Vec<u8>,
}

impl NdjsonFile {
    /// Begins the file, which has no header.
    pub(super) const fn new(out: HashedFile, columns: &'static [Column]) -> Self {
        Self { out, columns, line: Vec::new() }
    }

    fn value(&mut self, column: &Column, value: &Value) -> io::Result<()> {
        match value {
            Value::Null => self.line.extend_from_slice(b"null"),
            Value::Text(text) if column.kind == Kind::Json => self.line.extend_from_slice(text.as_bytes()),
            Value::Text(text) => serde_json::to_writer(&mut self.line, text)?,
            Value::Integer(number) => write!(self.line, "{number}")?,
            Value::Amount(amount) => write!(self.line, "\"{}\"", ten_digits(amount.decimal())?)?,
            Value::Quantity(quantity) => write!(self.line, "\"{}\"", ten_digits(*quantity)?)?,
            Value::Time(at) => write!(self.line, "\"{}\"", time(column.kind, *at))?,
        }
        Ok(())
    }
}

impl RowWriter for NdjsonFile {
    fn row(&mut self, row: &[Value]) -> io::Result<()> {
        self.line.clear();
        for (index, (column, value)) in self.columns.iter().zip(row).enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(self.line, "{before}\"{}\":", column.name)?;
            self.value(column, value)?;
        }
        self.line.extend_from_slice(b"}\n");
        self.out.write_all(&self.line)
    }

    fn finish(self: Box<Self>) -> io::Result<Stored> {
        self.out.finish()
    }
}
