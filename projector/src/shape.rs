//! The versions of the read models' tables, and the rebuild of those that are not in this program's version.

use farthing_log::connect::{self, Role};
use farthing_schema::read_model::ReadModel;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::engine::Error;
use crate::rebuild::{RebuildReport, replace};

const VERSIONS: &str = "SELECT name, version FROM ledger.shape";

const SET_VERSION: &str = "\
INSERT INTO ledger.shape (name, version) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET version = excluded.version";

/// The read models whose tables are not in this program's version. In a database that is older than the versions, that
/// is all of them.
pub async fn outdated(db: &Client) -> Result<Vec<ReadModel>, tokio_postgres::Error> {
    let mut stored: Vec<(String, i64)> = Vec::new();
    let rows = match db.query(VERSIONS, &[]).await {
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Vec::new(),
        rows => rows?,
    };
    for row in rows {
        stored.push((row.try_get("name")?, row.try_get("version")?));
    }
    let is_current = |model: &ReadModel| {
        stored.iter().any(|(name, version)| name == model.name() && *version == model.version())
    };
    Ok(ReadModel::ALL.into_iter().filter(|model| !is_current(model)).collect())
}

/// Rebuilds every read model that is not in this program's version. No projector of another version may run at the
/// same time.
pub async fn renew_outdated(database_url: &str) -> Result<Vec<RebuildReport>, Error> {
    let owner = connect::connect(database_url, Role::Owner).await?;
    let mut rebuilt = Vec::new();
    for model in outdated(&owner).await? {
        rebuilt.push(replace(database_url, model.name()).await?);
        owner.execute(SET_VERSION, &[&model.name(), &model.version()]).await?;
    }
    Ok(rebuilt)
}
