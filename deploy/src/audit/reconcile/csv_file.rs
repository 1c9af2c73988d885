//! A CSV file of a processor or a provider: its header, and its rows with their lines. What is doubtful is refused with the
//! line.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use csv::{ReaderBuilder, StringRecord};
use farthing_core::money::{self, parse_decimal};
use rust_decimal::Decimal;

use crate::bounded_file;

/// The most rows of a file.
const MAX_ROWS: usize = 2_000_000;

/// The largest file.
const MAX_BYTES: u64 = 1 << 30;

/// The most fractional digits of a figure.
const MAX_SCALE: u32 = 20;

/// A file that was read.
#[derive(Debug)]
pub(super) struct CsvFile {
    header: Vec<String>,
    rows: Vec<CsvRow>,
}

/// A row, with the line on which it begins.
#[derive(Debug)]
pub(super) struct CsvRow {
    pub(super) line: u64,
    fields: StringRecord,
}

/// A column of the file.
#[derive(Debug, Clone)]
pub(super) struct Column {
    name: String,
    index: usize,
}

impl CsvFile {
    /// Reads a file.
    pub(super) fn read(path: &Path, delimiter: u8) -> Result<Self> {
        let bytes = bounded_file::read(path, MAX_BYTES)?;
        Self::parse(&bytes, delimiter).with_context(|| farthing_tls::shown(path))
    }

    /// Reads the text of a file. A byte order mark at its beginning, and empty lines, are left out.
    pub(super) fn parse(bytes: &[u8], delimiter: u8) -> Result<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        ensure!(
            !bytes.starts_with(b"\xff\xfe") && !bytes.starts_with(b"\xfe\xff"),
            "the file is UTF-16, not UTF-8"
        );
        let mut reader =
            ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(bytes);
        let mut header: Option<Vec<String>> = None;
        let mut rows = Vec::new();
        let mut record = StringRecord::new();
        let mut lines = Lines { bytes, at: 0, line: 1 };
        while read(&mut reader, &mut record, &mut lines)? {
            let line = lines.of(record.position());
            // A line of blanks or of delimiters alone is empty, too.
            if record.iter().all(|field| field.trim().is_empty()) {
                continue;
            }
            let Some(header) = &header else {
                header = Some(record.iter().map(|name| name.trim().to_owned()).collect());
                continue;
            };
            let (expected, found) = (header.len(), record.len());
            ensure!(expected == found, "line {line}: {found} fields, where the header has {expected}");
            ensure!(rows.len() < MAX_ROWS, "line {line}: more than {MAX_ROWS} rows");
            rows.push(CsvRow { line, fields: record.clone() });
        }
        let header = header.context("the file is empty")?;
        Ok(Self { header, rows })
    }

    /// Whether the header has a column.
    pub(super) fn has(&self, name: &str) -> bool {
        self.header.iter().any(|column| column == name)
    }

    /// The column of a name, which must be there once.
    pub(super) fn column(&self, name: &str) -> Result<Column> {
        let mut found = self.header.iter().enumerate().filter(|(_, column)| *column == name);
        let Some((index, _)) = found.next() else {
            bail!("the file has no column {name:?}: its columns are {}", self.header.join(", "));
        };
        ensure!(found.next().is_none(), "the file has the column {name:?} twice");
        Ok(Column { name: name.to_owned(), index })
    }

    /// The columns of these names.
    pub(super) fn columns(&self, names: &[String]) -> Result<Vec<Column>> {
        names.iter().map(|name| self.column(name)).collect()
    }

    /// The rows.
    pub(super) fn rows(&self) -> &[CsvRow] {
        &self.rows
    }
}

fn read(reader: &mut csv::Reader<&[u8]>, record: &mut StringRecord, lines: &mut Lines<'_>) -> Result<bool> {
    reader.read_record(record).map_err(|error| {
        let line = lines.of(error.position());
        match error.kind() {
            csv::ErrorKind::Utf8 { .. } => anyhow::anyhow!("line {line}: the text is not UTF-8"),
            _ => anyhow::anyhow!("line {line}: {error}"),
        }
    })
}

/// Counts lines. The reader's own count is that before the empty lines and the line feed that precede a record.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line of a record, which is behind the one before.
    fn of(&mut self, position: Option<&csv::Position>) -> u64 {
        let start = position.and_then(|position| usize::try_from(position.byte()).ok()).unwrap_or(self.at);
        let passed = self.bytes.get(self.at..).unwrap_or_default();
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let blank =
            self.bytes.get(start..).unwrap_or_default().iter().take_while(|byte| is_end(byte)).count();
        let length = (start + blank).saturating_sub(self.at);
        let feeds = passed.iter().take(length).filter(|byte| **byte == b'\n').count();
        self.line += feeds as u64;
        self.at += length;
        self.line
    }
}

impl CsvRow {
    /// The text in a column, without blanks around it.
    pub(super) fn text(&self, column: &Column) -> &str {
        self.fields.get(column.index).unwrap_or_default().trim()
    }

    /// The text in a column, which must not be empty.
    pub(super) fn required(&self, column: &Column) -> Result<&str> {
        let text = self.text(column);
        ensure!(!text.is_empty(), "line {}, column {:?}: the value is missing", self.line, column.name);
        Ok(text)
    }

    /// The exact number in a column; zero if it is empty.
    pub(super) fn number(&self, column: &Column) -> Result<Decimal> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(Decimal::ZERO);
        }
        parse_decimal(text, MAX_SCALE).map_err(|error| {
            let why = match error {
                money::Error::Malformed => {
                    "is not a plain number such as 1234.5: thousands separators, currency signs, decimal commas and \
                     exponents are not accepted"
                        .to_owned()
                }
                money::Error::TooPrecise => format!("has more than {MAX_SCALE} fractional digits"),
                money::Error::OutOfRange => "is out of range".to_owned(),
            };
            self.error(column, &why)
        })
    }

    /// An error about the text in a column.
    pub(super) fn error(&self, column: &Column, why: &str) -> anyhow::Error {
        let text: String = self.text(column).chars().take(60).collect();
        anyhow::anyhow!("line {}, column {:?}: {text:?} {why}", self.line, column.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &CsvFile, name: &str) -> Vec<(u64, String)> {
        let column = file.column(name).unwrap();
        file.rows().iter().map(|row| (row.line, row.text(&column).to_owned())).collect()
    }

    fn error(bytes: &[u8]) -> String {
        format!("{:#}", CsvFile::parse(bytes, b',').unwrap_err())
    }

    #[test]
    fn marks_quotes_empty_lines_and_windows_line_ends_are_read() {
        let text = "\u{feff}id,note\r\n\r\na,\"one, \"\"two\"\"\r\nthree\"\r\n , \r\nb,x\r\n";
        let file = CsvFile::parse(text.as_bytes(), b',').unwrap();
        assert_eq!(texts(&file, "id"), [(3, "a".to_owned()), (6, "b".to_owned())]);
        assert_eq!(texts(&file, "note")[0].1, "one, \"two\"\r\nthree");
        let file = CsvFile::parse(b"id;n\na;1\n", b';').unwrap();
        assert_eq!(texts(&file, "n"), [(2, "1".to_owned())]);
    }

    #[test]
    fn a_row_of_another_length_is_refused_with_its_line() {
        assert_eq!(error(b"a,b\n1,2\n1,2,3\n"), "line 3: 3 fields, where the header has 2");
        assert_eq!(error(b""), "the file is empty");
        assert_eq!(error(b"a,b\n1,\xff\n"), "line 2: the text is not UTF-8");
        assert_eq!(error(b"\xff\xfea\0"), "the file is UTF-16, not UTF-8");
    }

    #[test]
    fn a_column_must_be_there_once() {
        let file = CsvFile::parse(b"a,b,b\n1,2,3\n", b',').unwrap();
        assert!(file.has("a") && !file.has("c"));
        let unknown = file.column("c").unwrap_err().to_string();
        assert_eq!(unknown, "the file has no column \"c\": its columns are a, b, b");
        assert_eq!(file.column("b").unwrap_err().to_string(), "the file has the column \"b\" twice");
    }

    #[test]
    fn numbers_are_exact_and_plain() {
        let file = CsvFile::parse(b"n\n0.0000000000123\n1000.0\n-2\n", b',').unwrap();
        let column = file.column("n").unwrap();
        let numbers: Vec<_> =
            file.rows().iter().map(|row| row.number(&column).unwrap().to_string()).collect();
        assert_eq!(numbers, ["0.0000000000123", "1000", "-2"]);
        for text in ["1,000", "1.000,5", "$5", "1e3", "(5)", "1 000", "+1", "NaN", "1'000"] {
            let file = CsvFile::parse(format!("n;x\n{text};x\n").as_bytes(), b';').unwrap();
            let error = file.rows()[0].number(&file.column("n").unwrap()).unwrap_err().to_string();
            assert!(error.starts_with("line 2, column \"n\": ") && error.contains("thousands"), "{error}");
        }
    }
}
