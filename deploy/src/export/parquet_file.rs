//! Apache Parquet: amounts as decimals of 38 digits, 10 of them fractional; times in microseconds of UTC; zstd.
//!
//! Invariant: a row group has a bounded number of rows and of bytes, so memory does not grow with the file.

use std::io;
use std::sync::Arc;

use farthing_log::audit::export::{Column, Kind, Table, Value};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{Type, TypePtr};
use rust_decimal::Decimal;

use super::hashed_file::{HashedFile, Stored};
use super::table_file::{RowWriter, SCALE};

/// The most rows of a row group.
const GROUP_ROWS: usize = 16_384;

/// A row group ends with the row that brings its texts above this many bytes.
const GROUP_TEXT_BYTES: usize = 8 * 1_024 * 1_024;

/// The bytes of a decimal, and its digits.
const DECIMAL_BYTES: usize = 16;
const DECIMAL_DIGITS: u32 = 38;

/// A Parquet file that is being written.
pub(super) struct ParquetFile {
    writer: SerializedFileWriter<HashedFile>,
    columns: Vec<Values>,
    rows: usize,
    text_bytes: usize,
}

/// The values of a column that are not written yet.
struct Values {
    data: Data,
    /// For each row whether it has a value; `None` if every row has one.
    levels: Option<Vec<i16>>,
}

enum Data {
    Texts(Vec<ByteArray>),
    Integers(Vec<i64>),
    Decimals(Vec<FixedLenByteArray>),
}

impl ParquetFile {
    /// Begins the file.
    pub(super) fn new(out: HashedFile, table: Table) -> io::Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("farthing ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer = SerializedFileWriter::new(out, schema(table).map_err(io_error)?, properties.into());
        let columns = table.columns().iter().map(Values::of).collect();
        Ok(Self { writer: writer.map_err(io_error)?, columns, rows: 0, text_bytes: 0 })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for values in &mut self.columns {
            let column = group.next_column()?.expect("the schema has these columns");
            values.write(column)?;
        }
        group.close()?;
        (self.rows, self.text_bytes) = (0, 0);
        Ok(())
    }
}

impl RowWriter for ParquetFile {
    fn row(&mut self, row: &[Value]) -> io::Result<()> {
        for (values, value) in self.columns.iter_mut().zip(row) {
            if let Value::Text(text) = value {
                self.text_bytes += text.len();
            }
            values.push(value)?;
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS || self.text_bytes > GROUP_TEXT_BYTES {
            self.write_group().map_err(io_error)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<Stored> {
        self.write_group().map_err(io_error)?;
        self.writer.into_inner().map_err(io_error)?.finish()
    }
}

impl Values {
    fn of(column: &Column) -> Self {
        let data = match column.kind {
            Kind::Name | Kind::Text | Kind::Json => Data::Texts(Vec::new()),
            Kind::Integer | Kind::Time | Kind::Second => Data::Integers(Vec::new()),
            Kind::Amount | Kind::Quantity => Data::Decimals(Vec::new()),
        };
        Self { data, levels: column.is_nullable.then(Vec::new) }
    }

    fn push(&mut self, value: &Value) -> io::Result<()> {
        if let Some(levels) = &mut self.levels {
            levels.push(i16::from(*value != Value::Null));
        }
        match (&mut self.data, value) {
            (Data::Texts(_) | Data::Integers(_) | Data::Decimals(_), Value::Null) => {}
            (Data::Texts(texts), Value::Text(text)) => texts.push(text.as_str().into()),
            (Data::Integers(integers), Value::Integer(number)) => integers.push(*number),
            (Data::Integers(integers), Value::Time(at)) => integers.push(at.timestamp_micros()),
            (Data::Decimals(decimals), Value::Amount(amount)) => {
                decimals.push(fixed_bytes(amount.decimal())?);
            }
            (Data::Decimals(decimals), Value::Quantity(quantity)) => decimals.push(fixed_bytes(*quantity)?),
            (Data::Texts(_) | Data::Integers(_) | Data::Decimals(_), other) => {
                unreachable!("the column takes no {other:?}")
            }
        }
        Ok(())
    }

    /// Writes the values of a row group, and forgets them.
    fn write(&mut self, mut column: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = self.levels.as_deref();
        match &mut self.data {
            Data::Texts(texts) => {
                column.typed::<ByteArrayType>().write_batch(texts, levels, None)?;
                texts.clear();
            }
            Data::Integers(integers) => {
                column.typed::<Int64Type>().write_batch(integers, levels, None)?;
                integers.clear();
            }
            Data::Decimals(decimals) => {
                column.typed::<FixedLenByteArrayType>().write_batch(decimals, levels, None)?;
                decimals.clear();
            }
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
        column.close()
    }
}

/// The schema of a table.
fn schema(table: Table) -> Result<TypePtr, ParquetError> {
    let fields = table.columns().iter().map(|column| field(column).map(Arc::new));
    let schema = Type::group_type_builder(table.name()).with_fields(fields.collect::<Result<_, _>>()?);
    Ok(Arc::new(schema.build()?))
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let repetition = if column.is_nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let field = |physical| Type::primitive_type_builder(column.name, physical).with_repetition(repetition);
    let (scale, digits) = (SCALE.cast_signed(), DECIMAL_DIGITS.cast_signed());
    match column.kind {
        // JSON is text, too: readers differ in what they make of the type JSON.
        Kind::Name | Kind::Text | Kind::Json => {
            field(PhysicalType::BYTE_ARRAY).with_logical_type(Some(LogicalType::String))
        }
        Kind::Integer => field(PhysicalType::INT64).with_logical_type(Some(LogicalType::integer(64, true))),
        Kind::Amount | Kind::Quantity => field(PhysicalType::FIXED_LEN_BYTE_ARRAY)
            .with_length(i32::try_from(DECIMAL_BYTES).expect("a small number"))
            .with_precision(digits)
            .with_scale(scale)
            .with_logical_type(Some(LogicalType::decimal(scale, digits))),
        Kind::Time | Kind::Second => {
            field(PhysicalType::INT64).with_logical_type(Some(LogicalType::timestamp(true, TimeUnit::MICROS)))
        }
    }
    .build()
}

/// The decimal as a whole number of its tenth fractional digit, in two's complement, the highest byte first.
fn fixed_bytes(value: Decimal) -> io::Result<FixedLenByteArray> {
    let normal = value.normalize();
    let unscaled = SCALE
        .checked_sub(normal.scale())
        .and_then(|missing| normal.mantissa().checked_mul(10_i128.checked_pow(missing)?))
        .ok_or_else(|| io::Error::other(format!("{value} is no decimal with {SCALE} fractional digits")))?;
    Ok(FixedLenByteArray::from(unscaled.to_be_bytes().to_vec()))
}

fn io_error(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_a_whole_number_of_its_tenth_digit() {
        let bytes = |text: &str| fixed_bytes(text.parse().unwrap()).map(|bytes| bytes.data().to_vec());
        let number = |number: i128| number.to_be_bytes().to_vec();
        assert_eq!(bytes("0").unwrap(), number(0));
        assert_eq!(bytes("0.0000000001").unwrap(), number(1));
        assert_eq!(bytes("-0.1").unwrap(), number(-1_000_000_000));
        assert_eq!(bytes("1000000000000").unwrap(), number(10_i128.pow(22)));
        assert_eq!(bytes("1.500000000000").unwrap(), number(15_000_000_000));
        assert!(bytes("0.00000000001").is_err());
    }
}
