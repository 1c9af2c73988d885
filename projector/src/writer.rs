//! Writes rows into one generation of a read model. Invariant: every statement names its tables under `{schema}`, so
//! that the same code writes the live generation and the one that is built beside it. A column is named once, beside
//! its value: [`copy_rows!`](copy_rows) and [`unnest_rows!`](unnest_rows) make both the statement and its parameters of
//! it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use deadpool_postgres::Transaction;
use farthing_core::partition::Partition;
use farthing_schema::read_model::SCHEMA_PLACEHOLDER;
use futures_util::SinkExt as _;
use tokio_postgres::types::{IsNull, ToSql, Type};
use tokio_postgres::{CopyInSink, Error, Row};

/// The texts of the statements of one generation. A connection prepares each of them once.
#[derive(Debug)]
pub(crate) struct Statements {
    schema: String,
    texts: Mutex<HashMap<&'static str, Arc<str>>>,
}

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        Self { schema: schema.to_owned(), texts: Mutex::default() }
    }

    /// The statement with the generation's schema in it.
    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace(SCHEMA_PLACEHOLDER, &self.schema)
    }

    /// The same, which is kept.
    pub(crate) fn text(&self, sql: &'static str) -> Arc<str> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(texts.entry(sql).or_insert_with(|| self.sql(sql).into()))
    }
}

/// An open transaction on one generation. Statements whose futures are polled together are one round trip: each is sent when
/// its future is polled first, if it is [prepared](Self::prepare), and Postgres executes them in this order.
///
/// Invariant: once a statement has failed, its connection is used for nothing more and is closed, by
/// [`close_failed`](crate::writers::close_failed). A `COPY` that Postgres refuses before it takes rows, as each does after an
/// error in the transaction, is answered twice: a `Sync` follows the statement, and another one the end of the copy. From
/// there on the client takes each response for that of the statement after it. So of statements that are sent together only
/// the first error, in the order in which they are sent, is to be believed; after it, not even a success is.
pub(crate) struct Writer<'a> {
    transaction: &'a Transaction<'a>,
    statements: &'a Statements,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(transaction: &'a Transaction<'a>, statements: &'a Statements) -> Self {
        Self { transaction, statements }
    }

    /// Prepares statements on this connection, where they are not yet. Without it, statements that are executed together may
    /// be sent in any order.
    pub(crate) async fn prepare<const N: usize>(&self, statements: [&'static str; N]) -> Result<(), Error> {
        for sql in statements {
            self.transaction.prepare_cached(&self.statements.text(sql)).await?;
        }
        Ok(())
    }

    /// Executes a statement; returns how many rows it changed.
    pub(crate) async fn execute(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let statement = self.transaction.prepare_cached(&self.statements.text(sql)).await?;
        self.transaction.execute(&statement, parameters).await
    }

    /// The rows of a query.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let statement = self.transaction.prepare_cached(&self.statements.text(sql)).await?;
        self.transaction.query(&statement, parameters).await
    }

    /// Begins to copy rows into a table. `sql` is a `COPY … FROM STDIN BINARY`.
    pub(crate) async fn copy(&self, sql: &'static str) -> Result<CopiedRows, Error> {
        let statement = self.transaction.prepare_cached(&self.statements.text(sql)).await?;
        Ok(CopiedRows::new(self.transaction.copy_in(&statement).await?))
    }
}

/// Bytes that are collected before they are sent to Postgres. The writer of tokio-postgres sends every 4 KiB, and waits
/// each time until the task of the connection has taken them.
const COPY_BYTES: usize = 128 * 1024;

/// What a binary copy begins with: the signature, no flags, no more of a header.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// What it ends with, in the place of the number of columns.
const COPY_END: i16 = -1;

/// Rows on their way into a table.
pub(crate) struct CopiedRows {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    buffer: BytesMut,
}

impl CopiedRows {
    fn new(sink: CopyInSink<Bytes>) -> Self {
        Self { sink: Box::pin(sink), buffer: COPY_HEADER.into() }
    }

    /// Adds a row: a value for each column, with its type.
    pub(crate) async fn write(&mut self, row: &[(&(dyn ToSql + Sync), Type)]) -> Result<(), Error> {
        put_row(row, &mut self.buffer);
        if self.buffer.len() > COPY_BYTES {
            self.sink.send(self.buffer.split().freeze()).await?;
        }
        Ok(())
    }

    /// Ends the copy.
    pub(crate) async fn finish(mut self) -> Result<(), Error> {
        self.buffer.put_i16(COPY_END);
        self.sink.send(self.buffer.freeze()).await?;
        self.sink.as_mut().finish().await.map(drop)
    }
}

/// Adds a row to a binary copy: the number of its columns, and each value with its length before it.
fn put_row(row: &[(&(dyn ToSql + Sync), Type)], buffer: &mut BytesMut) {
    buffer.put_i16(i16::try_from(row.len()).expect("a table has few columns"));
    for (value, column) in row {
        let at = buffer.len();
        buffer.put_i32(NULL);
        if let IsNull::No =
            value.to_sql_checked(column, buffer).expect("columns have the types of their values")
        {
            let length = i32::try_from(buffer.len() - at - 4).expect("a value is smaller than 2 GiB");
            buffer[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
}

/// The length of a value that is null.
const NULL: i32 = -1;

/// Writes the changes of a batch.
pub(crate) trait WriteRows: Sized {
    /// Writes the changes of some partitions, in the order that their statements need.
    fn write_rows(
        batches: &[(Partition, Self)],
        db: &Writer<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Declares a statement that copies new rows into a table, and the function that executes it. A column is its name,
/// its SQL type and its value of each row; the partition is the first column of every table. The function takes the
/// batches and the rows of a batch. A binary `COPY` is the fastest way to insert rows.
macro_rules! copy_rows {
    (
        $statement:ident, $function:ident<$life:lifetime>,
        into $table:ident,
        for $pattern:pat in $row:ty => { $($column:ident: $sql_type:ident = $value:expr),+ $(,)? }
    ) => {
        const $statement: &str = concat!(
            "COPY {schema}.",
            stringify!($table),
            " (partition, ",
            $crate::writer::column_names!($($column)+),
            ") FROM STDIN BINARY"
        );

        async fn $function<$life, B: Sync, R: Iterator<Item = $row> + Send>(
            db: &$crate::writer::Writer<'_>,
            batches: &$life [(farthing_core::partition::Partition, B)],
            rows: impl Fn(&$life B) -> R + Send,
        ) -> Result<(), tokio_postgres::Error> {
            if batches.iter().all(|(_, batch)| rows(batch).next().is_none()) {
                return Ok(());
            }
            let mut copy = db.copy($statement).await?;
            for (partition, batch) in batches {
                let partition = partition.number();
                for $pattern in rows(batch) {
                    copy.write(&[
                        (&partition, tokio_postgres::types::Type::INT2),
                        $((&$value, $crate::writer::sql_type!($sql_type))),+
                    ])
                    .await?;
                }
            }
            copy.finish().await
        }
    };
}

/// Declares a statement that takes many rows as parameters, one array per column, and the function that executes it. A
/// column is its name, its SQL type and its value of each row; the partition comes before them. In the text of the
/// statement `(columns)` is the list of the columns' names, and `(rows as name)` the table of the rows. The function
/// takes the batches and the rows of a batch.
macro_rules! unnest_rows {
    (
        $statement:ident, $function:ident<$life:lifetime>,
        [$($piece:tt)+],
        for $pattern:pat in $row:ty => $columns:tt
    ) => {
        const $statement: &str =
            $crate::writer::unnest_rows!(@text $columns [] $($piece)+);

        $crate::writer::unnest_rows!(@function $statement, $function<$life>, for $pattern in $row => $columns);
    };
    (@text $columns:tt [$($done:expr),*]) => { concat!($($done),*) };
    (@text $columns:tt [$($done:expr),*] $piece:tt $($rest:tt)*) => {
        $crate::writer::unnest_rows!(
            @text $columns [$($done,)* $crate::writer::unnest_rows!(@piece $piece $columns)] $($rest)*
        )
    };
    (@piece (columns) { $($column:ident: $sql_type:ident = $value:expr),+ $(,)? }) => {
        concat!("partition, ", $crate::writer::column_names!($($column)+))
    };
    (@piece (rows as $name:ident) { $($column:ident: $sql_type:ident = $value:expr),+ $(,)? }) => {
        concat!(
            "unnest($1::int2[], ",
            $crate::writer::array_parameters!([] [2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24] $($sql_type)+),
            ") AS ",
            stringify!($name),
            "(partition, ",
            $crate::writer::column_names!($($column)+),
            ")"
        )
    };
    (@piece $text:literal $columns:tt) => { $text };
    (
        @function $statement:ident, $function:ident<$life:lifetime>,
        for $pattern:pat in $row:ty => { $($column:ident: $sql_type:ident = $value:expr),+ $(,)? }
    ) => {
        async fn $function<$life, B: Sync, R: Iterator<Item = $row> + Send>(
            db: &$crate::writer::Writer<'_>,
            batches: &$life [(farthing_core::partition::Partition, B)],
            rows: impl Fn(&$life B) -> R + Send,
        ) -> Result<(), tokio_postgres::Error> {
            let mut partitions: Vec<i16> = Vec::new();
            $(let mut $column = Vec::new();)+
            for (partition, batch) in batches {
                for $pattern in rows(batch) {
                    partitions.push(partition.number());
                    $($column.push($value);)+
                }
            }
            if partitions.is_empty() {
                return Ok(());
            }
            db.execute($statement, &[&partitions, $(&$column),+]).await.map(drop)
        }
    };
}

/// The names, with commas between them.
macro_rules! column_names {
    ($first:ident $($other:ident)*) => { concat!(stringify!($first) $(, ", ", stringify!($other))*) };
}

/// `$1::text[], $2::numeric[]` and so on: a parameter for each SQL type.
macro_rules! array_parameters {
    ([$($done:expr),*] [$number:literal $($numbers:literal)*] $last:ident) => {
        concat!($($done,)* "$", $number, "::", stringify!($last), "[]")
    };
    ([$($done:expr),*] [$number:literal $($numbers:literal)*] $next:ident $($rest:ident)+) => {
        $crate::writer::array_parameters!(
            [$($done,)* "$", $number, "::", stringify!($next), "[], "] [$($numbers)*] $($rest)+
        )
    };
}

/// The type of a column.
macro_rules! sql_type {
    (text) => {
        tokio_postgres::types::Type::TEXT
    };
    (timestamptz) => {
        tokio_postgres::types::Type::TIMESTAMPTZ
    };
    (numeric) => {
        tokio_postgres::types::Type::NUMERIC
    };
    (bool) => {
        tokio_postgres::types::Type::BOOL
    };
    (int2) => {
        tokio_postgres::types::Type::INT2
    };
    (int4) => {
        tokio_postgres::types::Type::INT4
    };
    (int8) => {
        tokio_postgres::types::Type::INT8
    };
    (jsonb) => {
        tokio_postgres::types::Type::JSONB
    };
    (bytea) => {
        tokio_postgres::types::Type::BYTEA
    };
}

pub(crate) use {array_parameters, column_names, copy_rows, sql_type, unnest_rows};
