//! SHA-256 over all rows of a read table: of each row its text and a line feed, in the order of the texts' bytes. Two
//! generations with the same digests have the same rows, and no other ones.

use std::pin::pin;

use farthing_core::secret::hex;
use farthing_schema::read_model::ReadModel;
use futures_util::TryStreamExt as _;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Transaction;

use crate::engine::Error;

/// The text of each row.
const ROWS: &str = "SELECT t::text AS row FROM {schema}.{table} AS t ORDER BY (t::text COLLATE \"C\")";

/// Whether the digests of the tables are computed, while the live rows are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Digests {
    /// Of both generations. It sorts each table twice.
    Compute,
    /// No digests.
    LeaveOut,
}

/// The digests of a read table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableDigest {
    /// The table.
    pub table: &'static str,
    /// The number of its live rows.
    pub rows: u64,
    /// SHA-256 over the live rows, in hexadecimal.
    pub live: String,
    /// SHA-256 over the rows that were built from the log, in hexadecimal.
    pub rebuilt: String,
}

/// The digests of all tables of `model`, in the schemas `live` and `new`.
pub(crate) async fn digests(
    hold: &Transaction<'_>,
    model: ReadModel,
    (live, new): (&str, &str),
) -> Result<Vec<TableDigest>, Error> {
    let mut digests = Vec::new();
    for table in model.tables() {
        let (rows, live) = digest(hold, live, table).await?;
        let (_, rebuilt) = digest(hold, new, table).await?;
        digests.push(TableDigest { table, rows, live, rebuilt });
    }
    Ok(digests)
}

async fn digest(hold: &Transaction<'_>, schema: &str, table: &str) -> Result<(u64, String), Error> {
    let sql = ROWS.replace("{schema}", schema).replace("{table}", table);
    let none: [&str; 0] = [];
    let mut rows = pin!(hold.query_raw(&sql, none).await?);
    let (mut count, mut digest) = (0, Sha256::new());
    while let Some(row) = rows.try_next().await? {
        digest.update(row.try_get::<_, &str>("row")?);
        digest.update("\n");
        count += 1;
    }
    Ok((count, hex(&digest.finalize())))
}
