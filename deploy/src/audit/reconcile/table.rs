//! A table on stdout: in columns, or as comma-separated values.

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};

use crate::csv_text::{self, no_formula};
use crate::output::Shown;

/// The columns of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnOf {
    name: &'static str,
    side: Side,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// A column of texts.
pub(super) const fn text(name: &'static str) -> ColumnOf {
    ColumnOf { name, side: Side::Left }
}

/// A column of numbers.
pub(super) const fn number(name: &'static str) -> ColumnOf {
    ColumnOf { name, side: Side::Right }
}

/// Writes rows in columns that are as wide as their widest text. Control characters of a file are shown escaped.
pub(super) fn write_text(out: &mut impl Write, columns: &[ColumnOf], rows: &[Vec<String>]) -> io::Result<()> {
    let header: Vec<String> = columns.iter().map(|column| column.name.to_owned()).collect();
    let rows: Vec<Vec<String>> =
        [header].iter().chain(rows).map(|row| row.iter().map(|text| shown(text)).collect()).collect();
    let width =
        |index: usize| rows.iter().filter_map(|row| row.get(index)).map(|text| text.chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).map(|index| width(index).unwrap_or_default()).collect();
    for row in &rows {
        let mut line = String::new();
        for ((text, column), width) in row.iter().zip(columns).zip(&widths) {
            let padding = " ".repeat(width - text.chars().count());
            if !line.is_empty() {
                line.push_str("  ");
            }
            match column.side {
                Side::Left => line.extend([text.as_str(), &padding]),
                Side::Right => line.extend([padding.as_str(), text]),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn shown(text: &str) -> String {
    Shown(text).to_string()
}

/// Writes rows as comma-separated values with a header.
pub(super) fn write_csv(out: impl Write, columns: &[ColumnOf], rows: &[Vec<String>]) -> io::Result<()> {
    let mut csv = csv_text::writer(out);
    csv.write_record(columns.iter().map(|column| column.name))?;
    for row in rows {
        let fields = row.iter().zip(columns).map(|(field, column)| match column.side {
            Side::Left => no_formula(field),
            Side::Right => Cow::Borrowed(field.as_str()),
        });
        for field in fields {
            csv.write_field(field.as_bytes())?;
        }
        csv.write_record(None::<&[u8]>)?;
    }
    csv.flush()
}

/// Stdout, written in blocks.
pub(super) fn stdout() -> BufWriter<io::StdoutLock<'static>> {
    BufWriter::new(io::stdout().lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_at_the_right_and_control_characters_are_escaped() {
        let mut out = Vec::new();
        let row = |name: &str, sum: &str| vec![name.to_owned(), sum.to_owned()];
        let rows = [row("a", "1"), row("b\u{1b}[31m", "1000")];
        write_text(&mut out, &[text("name"), number("sum")], &rows).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "name          sum\na               1\nb\\u{1b}[31m  1000\n"
        );
    }
}
