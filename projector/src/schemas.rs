//! The Postgres schemas of the read models. Invariant: a program reads and writes the generations of its own version, so
//! that processes of two releases work side by side, and no answer mixes their rows.

use std::borrow::Cow;
use std::sync::Arc;

use farthing_schema::read_model::ReadModel;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::engine::Error;

const GENERATIONS: &str = "SELECT name, version, schema_name, built FROM ledger.read_models";

const SET_BUILT: &str = "UPDATE ledger.read_models SET built = true WHERE name = $1 AND version = $2";

/// The schemas of this program's generations. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schemas(Arc<[(ReadModel, i64, String)]>);

impl Schemas {
    /// The schemas in a database that `farthing migrate` of this release has migrated.
    pub async fn load(client: &Client) -> Result<Self, Error> {
        let generations = generations(client).await?.into_iter();
        Ok(Self(generations.map(|(model, schema, _)| (model, model.version(), schema)).collect()))
    }

    /// The schema of `model`.
    pub fn of(&self, model: ReadModel) -> &str {
        self.generation(model).0
    }

    /// The schema of `model`, and its version.
    pub(crate) fn generation(&self, model: ReadModel) -> (&str, i64) {
        let found = self.0.iter().find(|(of, ..)| *of == model);
        found.map_or_else(
            || (model.name(), model.version()),
            |(_, version, schema)| (schema.as_str(), *version),
        )
    }

    /// The names of the locks that a process shares while it reads these generations.
    pub fn reader_locks(&self) -> Vec<String> {
        self.0.iter().map(|(.., schema)| reader_lock(schema)).collect()
    }

    /// A statement with the schema of each read model in the place of its name in braces: `{customers}.customers`.
    pub fn sql<'s>(&self, sql: &'s str) -> Cow<'s, str> {
        let mut text = Cow::Borrowed(sql);
        if sql.contains('{') {
            for (model, _, schema) in &*self.0 {
                let place = format!("{{{}}}", model.name());
                if text.contains(&place) {
                    text = Cow::Owned(text.replace(&place, schema));
                }
            }
        }
        text
    }
}

/// The name of the lock that processes share while they read the generation in `schema`.
pub(crate) fn reader_lock(schema: &str) -> String {
    format!("farthing.reads.{schema}")
}

/// The name of the lock of the one projection that works on the generation in `schema`. The fence of its checkpoint keeps
/// the rows right; the lock only spares two processes the same work.
pub(crate) fn writer_lock(schema: &str) -> String {
    format!("farthing.projection.{schema}")
}

/// The read models whose generation of this program's version has not caught up with the log yet. A projector of this
/// release builds them.
pub async fn unbuilt(client: &Client) -> Result<Vec<ReadModel>, Error> {
    let generations = generations(client).await?;
    Ok(generations.into_iter().filter(|(_, _, built)| !built).map(|(model, ..)| model).collect())
}

/// Marks the generation of this program's version as caught up. Fails if it was dropped.
pub(crate) async fn set_built(client: &Client, model: ReadModel) -> Result<(), Error> {
    match client.execute(SET_BUILT, &[&model.name(), &model.version()]).await? {
        0 => Err(Error::Outdated(model.name())),
        _ => Ok(()),
    }
}

/// The generation of each read model in this program's version: its schema, and whether it is built.
async fn generations(client: &Client) -> Result<Vec<(ReadModel, String, bool)>, Error> {
    let rows = client.query(GENERATIONS, &[]).await.map_err(|error| {
        let missing = error.code() == Some(&SqlState::UNDEFINED_TABLE);
        if missing { Error::NotMigrated(ReadModel::ALL[0].name()) } else { error.into() }
    })?;
    let mut found = Vec::new();
    for model in ReadModel::ALL {
        let own = rows.iter().find(|row| {
            row.get::<_, &str>("name") == model.name() && row.get::<_, i64>("version") == model.version()
        });
        let own = own.ok_or(Error::Outdated(model.name()))?;
        found.push((model, own.try_get("schema_name")?, own.try_get("built")?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_reads_the_generations_of_this_program() {
        let schemas = [(ReadModel::Plans, "plans"), (ReadModel::SpendKeys, "spend_keys_v01020304")];
        let schemas = Schemas(schemas.map(|(model, schema)| (model, 1, schema.to_owned())).into());
        let sql = "SELECT FROM {plans}.plans JOIN {spend_keys}.spending WHERE a = '{at}' AND b = {1}";
        assert_eq!(
            schemas.sql(sql),
            "SELECT FROM plans.plans JOIN spend_keys_v01020304.spending WHERE a = '{at}' AND b = {1}"
        );
        assert!(matches!(schemas.sql("SELECT 1"), Cow::Borrowed(_)));
    }
}
