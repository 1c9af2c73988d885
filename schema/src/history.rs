//! The migrations that a database has had, compared with those of this program. Changes nothing.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use crate::migrate::embedded;

/// The tables in which migrations were recorded, by the owner of the log.
const FIND: &str = "\
SELECT quote_ident(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = 'refinery_schema_history' AND c.relkind = 'r'
    AND c.relowner = (SELECT relowner FROM pg_class WHERE oid = to_regclass('ledger.batches'))
ORDER BY n.nspname = 'public' DESC, n.nspname LIMIT 1";

/// The session looks for the table in the schema that [`FIND`] names.
const APPLIED: &str = "SELECT version, name, checksum FROM refinery_schema_history ORDER BY version";

/// Looks names up among Postgres's own alone.
const SAFE_PATH: &str = "SET search_path = pg_catalog, pg_temp";

/// The difference between a database and this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The migrations of this program, as `V1__log`.
    pub known: Vec<String>,
    /// Those that the database has not had.
    pub missing: Vec<String>,
    /// Those that the database has had in another form.
    pub changed: Vec<String>,
    /// Those that only another program knows.
    pub unknown: Vec<String>,
}

/// Compares the migrations of a database with those of this program; `None` if there is no record of them.
pub async fn compare(client: &Client) -> Result<Option<Difference>, tokio_postgres::Error> {
    let Some(found) = client.query_opt(FIND, &[]).await? else { return Ok(None) };
    let schema: &str = found.try_get(0)?;
    client.batch_execute(&format!("SET search_path = {schema}")).await?;
    let applied = client.query(APPLIED, &[]).await;
    client.batch_execute(SAFE_PATH).await?;
    let mut rows = BTreeMap::new();
    for row in applied? {
        let (version, name): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
        rows.insert(i64::from(version), (name, row.try_get::<_, String>(2)?));
    }
    Ok(Some(difference(rows)))
}

/// Whether a migration of this program contains this text, such as the body of a function.
pub fn contains(text: &str) -> bool {
    let runner = embedded::migrations::runner();
    runner.get_migrations().iter().any(|migration| migration.sql().is_some_and(|sql| sql.contains(text)))
}

/// `applied` has the name and the checksum of each version.
fn difference(mut applied: BTreeMap<i64, (String, String)>) -> Difference {
    let mut found =
        Difference { known: Vec::new(), missing: Vec::new(), changed: Vec::new(), unknown: Vec::new() };
    for migration in embedded::migrations::runner().get_migrations() {
        let name = migration.to_string();
        match applied.remove(&i64::from(migration.version())) {
            None => found.missing.push(name.clone()),
            Some((had, checksum)) => {
                if had != migration.name() || checksum != migration.checksum().to_string() {
                    found.changed.push(name.clone());
                }
            }
        }
        found.known.push(name);
    }
    found.unknown = applied.into_iter().map(|(version, (name, _))| format!("V{version}__{name}")).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_may_be_missing_changed_or_unknown() {
        let migrations = embedded::migrations::runner();
        let all = migrations.get_migrations().iter();
        let mut applied: BTreeMap<_, _> = all
            .map(|known| {
                (i64::from(known.version()), (known.name().to_owned(), known.checksum().to_string()))
            })
            .collect();
        let same = difference(applied.clone());
        assert_eq!((same.missing.len(), same.changed.len(), same.unknown.len()), (0, 0, 0));
        assert!(same.known.contains(&"V1__log".to_owned()), "{:?}", same.known);
        applied.remove(&2);
        applied.insert(1, ("log".to_owned(), "7".to_owned()));
        applied.insert(1_000, ("later".to_owned(), "7".to_owned()));
        let other = difference(applied);
        assert_eq!(other.missing, ["V2__roles"]);
        assert_eq!(other.changed, ["V1__log"]);
        assert_eq!(other.unknown, ["V1000__later"]);
    }

    #[test]
    fn the_text_of_a_migration_is_found() {
        assert!(contains("RAISE EXCEPTION 'ledger.batches is append-only"));
        assert!(!contains("BEGIN RETURN NEW; END"));
    }
}
