//! Drops the generations of read models that only an earlier release uses.

use farthing_log::connect::{self, Role};
use farthing_schema::read_model::ReadModel;

use crate::engine::Error;
use crate::rebuild::drop_leftovers;
use crate::schemas::unbuilt;

/// The generations before this program's own of the read model $1, which has the version $2.
const EARLIER: &str = "\
SELECT schema_name FROM ledger.read_models
WHERE name = $1 AND number < (SELECT number FROM ledger.read_models WHERE name = $1 AND version = $2)
ORDER BY number";

const FORGET: &str = "DELETE FROM ledger.read_models WHERE schema_name = $1";

/// Drops them, and returns their schemas. Fails if a generation of this program's version is not built yet. Processes of
/// an earlier release cannot read or write read models any more.
pub async fn prune(database_url: &str) -> Result<Vec<String>, Error> {
    let mut client = connect::connect(database_url, Role::Owner).await?;
    if let Some(model) = unbuilt(&client).await?.first() {
        return Err(Error::Unbuilt(model.name()));
    }
    let mut dropped = Vec::new();
    for model in ReadModel::ALL {
        for row in client.query(EARLIER, &[&model.name(), &model.version()]).await? {
            let schema: String = row.try_get("schema_name")?;
            drop_leftovers(&client, &schema).await?;
            let transaction = client.transaction().await?;
            transaction.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?;
            transaction.execute(FORGET, &[&schema]).await?;
            transaction.commit().await?;
            dropped.push(schema);
        }
    }
    Ok(dropped)
}
