//! The checkpoint of a read model: one position per generation, in its own schema. Invariant: it moves only in the
//! transaction that writes the rows, and only from the position that the writer expects (the fence).

use farthing_schema::read_model::ReadModel;
use tokio_postgres::Client;

/// The position of a generation, and its number.
pub(crate) const SELECT: &str = "SELECT position, generation FROM {schema}.checkpoint";

/// Moves the checkpoint. No row is changed when another writer has moved it.
pub(crate) const ADVANCE: &str = "UPDATE {schema}.checkpoint SET position = $2 WHERE position = $1";

/// The position up to which the live generation of `model` shows the log. A reader that must see its own write waits
/// until this reaches the position of the write.
pub async fn position(db: &Client, model: ReadModel) -> Result<i64, tokio_postgres::Error> {
    let sql = SELECT.replace("{schema}", model.name());
    let rows = db.query_typed(&sql, &[]).await?;
    rows.first().map_or(Ok(0), |row| row.try_get("position"))
}
