//! Drops the generations of read models that only an earlier release uses.

use farthing_core::state::shape;
use farthing_log::connect::{self, Role};
use farthing_schema::read_model::ReadModel;

use crate::engine::Error;
use crate::rebuild::drop_leftovers;
use crate::schemas::{reader_lock, unbuilt, writer_lock};

/// The generations before this program's own of the read model $1, which has the version $2.
const EARLIER: &str = "\
SELECT schema_name, version FROM ledger.read_models
WHERE name = $1 AND number < (SELECT number FROM ledger.read_models WHERE name = $1 AND version = $2)
ORDER BY number";

/// The gateways that share the partitions, of a shape before $1.
const EARLIER_GATEWAYS: &str = "SELECT gateway FROM ledger.gateways WHERE expires_at > clock_timestamp() AND shape < $1 ORDER BY gateway";

/// Whether nobody holds the lock $1. It is released at the end of the statement.
const IS_FREE: &str = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))";

const FORGET: &str = "DELETE FROM ledger.read_models WHERE schema_name = $1";

const FORGET_IDLE_SPANS: &str = "DELETE FROM ledger.idle_spans WHERE read_model = $1 AND version = $2";

/// The processes of earlier releases that are seen to run, for people: gateways of an older shape, and what reads or
/// writes a generation that [`prune`] would drop.
pub async fn running(database_url: &str) -> Result<Vec<String>, Error> {
    let client = connect::connect(database_url, Role::Owner).await?;
    let mut running = Vec::new();
    for row in client.query(EARLIER_GATEWAYS, &[&shape()]).await? {
        running.push(format!("gateway {}", row.try_get::<_, &str>(0)?));
    }
    for model in ReadModel::ALL {
        for row in client.query(EARLIER, &[&model.name(), &model.version()]).await? {
            let schema: &str = row.try_get(0)?;
            if !client.query_one(IS_FREE, &[&writer_lock(schema)]).await?.try_get::<_, bool>(0)? {
                running.push(format!("a projector that writes {schema}"));
            }
            if !client.query_one(IS_FREE, &[&reader_lock(schema)]).await?.try_get::<_, bool>(0)? {
                running.push(format!("a gateway that reads {schema}"));
            }
        }
    }
    Ok(running)
}

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
            let version: i64 = row.try_get("version")?;
            transaction.execute(FORGET_IDLE_SPANS, &[&model.name(), &version]).await?;
            transaction.commit().await?;
            dropped.push(schema);
        }
    }
    Ok(dropped)
}
