//! How far a read model has come: a position per generation, in its own schema. Invariant: it moves only in the
//! transaction that writes the rows, and only from where its mover believes it to be (the fence).

use farthing_schema::read_model::ReadModel;
use tokio_postgres::Client;

/// Where a generation stands and which one it is.
pub(crate) const SELECT: &str = "SELECT position, generation FROM {schema}.checkpoint";

/// Moves on; no row is changed when another writer has moved it.
pub(crate) const ADVANCE: &str = "UPDATE {schema}.checkpoint SET position = $2 WHERE position = $1";

/// The position up to which the live generation of `model` shows the log: a reader that must see its own write
/// waits until it has come to the write's position.
pub async fn position(db: &Client, model: ReadModel) -> Result<i64, tokio_postgres::Error> {
    let sql = SELECT.replace("{schema}", model.name());
    let rows = db.query_typed(&sql, &[]).await?;
    rows.first().map_or(Ok(0), |row| row.try_get(0))
}
