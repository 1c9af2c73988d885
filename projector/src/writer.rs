//! Writes rows into one generation of a read model. Invariant: every statement names its tables under `{schema}`, so
//! that the same code writes the live generation and the one that is built beside it. A column is named once, beside
//! its value: [`copy_rows!`](copy_rows) and [`unnest_rows!`](unnest_rows) make both the statement and its parameters of
//! it.

use std::collections::HashMap;

use farthing_schema::read_model::SCHEMA_PLACEHOLDER;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Statement, Transaction};

/// The statements of one generation, prepared on one connection.
#[derive(Debug)]
pub(crate) struct Statements {
    schema: String,
    prepared: HashMap<&'static str, Statement>,
}

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        Self { schema: schema.to_owned(), prepared: HashMap::new() }
    }

    /// The statement with the generation's schema in it.
    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace(SCHEMA_PLACEHOLDER, &self.schema)
    }
}

/// An open transaction on one generation.
pub(crate) struct Writer<'a> {
    transaction: &'a Transaction<'a>,
    statements: &'a mut Statements,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(transaction: &'a Transaction<'a>, statements: &'a mut Statements) -> Self {
        Self { transaction, statements }
    }

    async fn prepared(&mut self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.transaction.prepare(&self.statements.sql(sql)).await?;
        self.statements.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Executes a statement; returns how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let statement = self.prepared(sql).await?;
        self.transaction.execute(&statement, parameters).await
    }

    /// Begins to copy rows into a table. `sql` is a `COPY … FROM STDIN BINARY` of columns of these types.
    pub(crate) async fn copy(
        &mut self,
        sql: &'static str,
        types: &[Type],
    ) -> Result<BinaryCopyInWriter, Error> {
        let statement = self.prepared(sql).await?;
        Ok(BinaryCopyInWriter::new(self.transaction.copy_in(&statement).await?, types))
    }
}

/// Writes the changes of a batch.
pub(crate) trait WriteRows {
    /// Writes the changes, in the order that their statements need.
    fn write_rows(&self, db: &mut Writer<'_>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Declares a statement that copies new rows into a table, and the function that executes it. A column is its name,
/// its SQL type and its value of each row. A binary `COPY` is the fastest way to insert rows.
macro_rules! copy_rows {
    (
        $statement:ident, $function:ident<$life:lifetime>,
        into $table:ident,
        for $pattern:pat in $row:ty => { $($column:ident: $sql_type:ident = $value:expr),+ $(,)? }
    ) => {
        const $statement: &str = concat!(
            "COPY {schema}.",
            stringify!($table),
            " (",
            $crate::writer::column_names!($($column)+),
            ") FROM STDIN BINARY"
        );

        async fn $function<$life>(
            db: &mut $crate::writer::Writer<'_>,
            rows: impl ExactSizeIterator<Item = $row> + Send,
        ) -> Result<(), tokio_postgres::Error> {
            if rows.len() == 0 {
                return Ok(());
            }
            let types = [$($crate::writer::sql_type!($sql_type)),+];
            let mut copy = std::pin::pin!(db.copy($statement, &types).await?);
            for $pattern in rows {
                copy.as_mut().write(&[$(&$value),+]).await?;
            }
            copy.finish().await.map(drop)
        }
    };
}

/// Declares a statement that takes many rows as parameters, one array per column, and the function that executes it. A
/// column is its name, its SQL type and its value of each row. In the text of the statement `(columns)` is the list of
/// the columns' names, and `(rows as name)` the table of the rows.
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
        $crate::writer::column_names!($($column)+)
    };
    (@piece (rows as $name:ident) { $($column:ident: $sql_type:ident = $value:expr),+ $(,)? }) => {
        concat!(
            "unnest(",
            $crate::writer::array_parameters!([] [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16] $($sql_type)+),
            ") AS ",
            stringify!($name),
            "(",
            $crate::writer::column_names!($($column)+),
            ")"
        )
    };
    (@piece $text:literal $columns:tt) => { $text };
    (
        @function $statement:ident, $function:ident<$life:lifetime>,
        for $pattern:pat in $row:ty => { $($column:ident: $sql_type:ident = $value:expr),+ $(,)? }
    ) => {
        async fn $function<$life>(
            db: &mut $crate::writer::Writer<'_>,
            rows: impl ExactSizeIterator<Item = $row> + Send,
        ) -> Result<(), tokio_postgres::Error> {
            if rows.len() == 0 {
                return Ok(());
            }
            $(let mut $column = Vec::with_capacity(rows.len());)+
            for $pattern in rows {
                $($column.push($value);)+
            }
            db.execute($statement, &[$(&$column),+]).await.map(drop)
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
