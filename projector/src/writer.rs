//! Writes rows into one generation of a read model. Invariant: every statement names its tables under `{schema}`,
//! so that the same code writes the live generation and the one that is built beside it.

use std::collections::HashMap;
use std::pin::{Pin, pin};

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

    /// Executes a statement; answers how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, Error> {
        let statement = self.prepared(sql).await?;
        self.transaction.execute(&statement, parameters).await
    }

    /// Copies rows in: `sql` is a `COPY … FROM STDIN BINARY` of columns of these types.
    pub(crate) async fn copy<R>(
        &mut self,
        sql: &'static str,
        types: &[Type],
        rows: &[R],
        columns: impl AsyncFn(Pin<&mut BinaryCopyInWriter>, &R) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let statement = self.prepared(sql).await?;
        let mut copy = pin!(BinaryCopyInWriter::new(self.transaction.copy_in(&statement).await?, types));
        for row in rows {
            columns(copy.as_mut(), row).await?;
        }
        copy.as_mut().finish().await?;
        Ok(())
    }
}
