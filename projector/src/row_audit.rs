//! The audit of the read models: folds the log into a copy beside the live rows and compares the two, a partition at a time.
//! While a partition is compared, its live rows do not move; readers go on. The copy is dropped at the end.

use std::collections::BTreeMap;

use farthing_core::partition::Partition;
use farthing_log::connect::{self, Role};
use farthing_log::leadership::Leadership;
use farthing_log::partitions;
use farthing_log::positions::Positions;
use farthing_log::reader::Reader;
use farthing_log::verify::verdict::{Check, Finding, Tallies, difference};
use farthing_schema::citus;
use farthing_schema::read_model::ReadModel;
use serde_json::{Map, Value};
use tokio_postgres::{Client, Transaction};

use crate::engine::{Error, Generation, Projection};
use crate::models::with_projection;
use crate::rebuild::{LOCK_PREFIX, MAX_BEHIND, catch_up, drop_leftovers, live_checkpoint};
use crate::schemas::{Schemas, unbuilt};
use crate::writers::Writers;

/// Keeps the live projection from writing rows of partition $1.
const HOLD_PARTITION: &str = "SELECT position FROM {schema}.checkpoint WHERE partition = $1 FOR UPDATE";

/// The number of rows of partition $1 that are in one generation only. Equal rows are counted separately.
const DIFFERENCES: &str = "SELECT COALESCE(sum(abs(surplus)), 0)::bigint AS differences FROM ( \
         SELECT sum(side) AS surplus FROM ( \
             SELECT 1 AS side, sha256(convert_to(l::text, 'UTF8')) AS digest FROM {live}.{table} AS l \
             WHERE l.partition = $1 \
             UNION ALL \
             SELECT -1, sha256(convert_to(n::text, 'UTF8')) FROM {new}.{table} AS n WHERE n.partition = $1 \
         ) AS either GROUP BY digest HAVING sum(side) <> 0 \
     ) AS unequal";

const COUNT: &str = "SELECT count(*) AS rows FROM {live}.{table} WHERE partition = $1";

/// Rows of partition $1 that are in the live generation only, as text and as JSON.
const ONLY_LIVE: &str = "\
SELECT l::text AS row, to_jsonb(l)::text AS json FROM {live}.{table} AS l WHERE l.partition = $1
EXCEPT ALL
SELECT n::text, to_jsonb(n)::text FROM {new}.{table} AS n WHERE n.partition = $1
ORDER BY row LIMIT 100";

/// Rows of partition $1 that are in the new generation only.
const ONLY_NEW: &str = "\
SELECT n::text AS row, to_jsonb(n)::text AS json FROM {new}.{table} AS n WHERE n.partition = $1
EXCEPT ALL
SELECT l::text, to_jsonb(l)::text FROM {live}.{table} AS l WHERE l.partition = $1
ORDER BY row LIMIT 100";

/// The columns of the primary key of the table $2 in the schema $1.
const KEY_COLUMNS: &str = "\
SELECT a.attname::text AS name FROM pg_namespace AS n
JOIN pg_class AS c ON c.relnamespace = n.oid
JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
WHERE n.nspname = $1::text AND c.relname = $2::text ORDER BY a.attnum";

/// Audits the rows of `model`, of one partition or of all. Nothing is compared of a model that is not built yet.
pub async fn audit(
    database_url: &str,
    model: ReadModel,
    partition: Option<Partition>,
) -> Result<Tallies, Error> {
    with_projection!(model, P => audit_model::<P>(database_url, partition).await)
}

async fn audit_model<P: Projection>(
    database_url: &str,
    partition: Option<Partition>,
) -> Result<Tallies, Error> {
    let model = P::MODEL;
    let client = connect::connect(database_url, Role::Projector).await?;
    let mut tallies = Tallies::default();
    if unbuilt(&client).await?.contains(&model) {
        tallies.skip(Check::ReadTables, format!("{}: not built by this release yet", model.name()));
        return Ok(tallies);
    }
    let schemas = Schemas::load(&client).await?;
    let live = schemas.of(model);
    let leadership = Leadership::try_take(client, &format!("{LOCK_PREFIX}{live}")).await?;
    let mut leadership = leadership.ok_or(Error::RebuildRunning(model.name()))?;
    let client = leadership.client_mut();
    drop_leftovers(client, live).await?;
    let number = live_checkpoint(client, model, live).await?.generation + 1;
    let copy = format!("{live}_g{number}");
    citus::create_schema(client, &copy, &model.ddl(&copy, number)).await?;
    let generation = Generation::open(Writers::new(database_url, 1)?, model, &copy).await?;
    let reader = Reader::connect(database_url, Role::Projector).await?;
    let mut rows = RowAudit { model, live, copy: &copy, generation, reader, tallies };
    let audited = rows.partitions::<P>(client, partition).await;
    let tallies = rows.tallies;
    drop_leftovers(client, live).await?;
    leadership.release().await?;
    audited.map(|()| tallies)
}

/// The audit of a read model.
struct RowAudit<'a> {
    model: ReadModel,
    /// The schema of the live rows.
    live: &'a str,
    /// The schema of the copy.
    copy: &'a str,
    generation: Generation,
    reader: Reader,
    tallies: Tallies,
}

impl RowAudit<'_> {
    async fn partitions<P: Projection>(
        &mut self,
        client: &mut Client,
        only: Option<Partition>,
    ) -> Result<(), Error> {
        let all = partitions::load(client).await?.ok_or(Error::NotMigrated(self.model.name()))?;
        let shown = live_checkpoint(client, self.model, self.live).await?.positions;
        // A projector adds the rows of the partitions above the first when it opens the read model.
        let is_opened = shown.iter().any(|(of, position)| of.number() > 0 || position > 0);
        for partition in all.all().filter(|of| only.is_none_or(|only| only == *of)) {
            if !shown.iter().any(|(of, _)| of == partition) {
                self.without_checkpoint(client, partition, is_opened).await?;
                continue;
            }
            match self.partition::<P>(client, partition).await {
                Ok(()) => {}
                Err(Error::LogEnds { position, target, .. }) => {
                    let text = format!(
                        "partition {partition}: {} shows the log up to position {target}, the log ends at {position}",
                        self.model.name()
                    );
                    let expected = format!("an event at position {target}");
                    let found = format!("the log ends at position {position}");
                    let position = position + 1;
                    self.tallies
                        .find(Check::ReadTables, Finding { partition, position, text, expected, found });
                }
                Err(error) if error.is_of_the_events() => {
                    let reason = format!(
                        "{}, partition {partition}: the events cannot be folded: {error}",
                        self.model.name()
                    );
                    self.tallies.skip(Check::ReadTables, reason);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that the read model has no checkpoint of a partition. That is as it should be only before a projector has opened
    /// the read model, which has no rows then.
    async fn without_checkpoint(
        &mut self,
        client: &Client,
        partition: Partition,
        is_opened: bool,
    ) -> Result<(), Error> {
        let mut rows: i64 = 0;
        for table in self.model.tables() {
            let count = client.query_one(&self.sql(COUNT, table), &[&partition.number()]).await?;
            rows += count.try_get::<_, i64>("rows")?;
        }
        if rows == 0 && !is_opened {
            let reason =
                format!("{}, partition {partition}: no projector has opened it yet", self.model.name());
            self.tallies.skip(Check::ReadTables, reason);
            return Ok(());
        }
        let text = format!("partition {partition}: {}.checkpoint has no row of it", self.live);
        let (expected, found) = ("a row".to_owned(), "none".to_owned());
        self.tallies.find(Check::ReadTables, Finding { partition, position: 1, text, expected, found });
        Ok(())
    }

    async fn partition<P: Projection>(
        &mut self,
        client: &mut Client,
        partition: Partition,
    ) -> Result<(), Error> {
        loop {
            let target = live_checkpoint(client, self.model, self.live).await?.positions.get(partition);
            self.fold_up_to::<P>(partition, target).await?;
            let live = live_checkpoint(client, self.model, self.live).await?.positions.get(partition);
            if live - target < MAX_BEHIND {
                break;
            }
        }
        let hold = client.transaction().await?;
        let position = hold.query_one(&self.sql(HOLD_PARTITION, ""), &[&partition.number()]).await?;
        let position: i64 = position.try_get("position")?;
        self.fold_up_to::<P>(partition, position).await?;
        hold.batch_execute("SET LOCAL work_mem = '64MB'").await?;
        for table in self.model.tables() {
            self.compare(&hold, table, partition, position).await?;
        }
        Ok(hold.commit().await?)
    }

    async fn fold_up_to<P: Projection>(&mut self, partition: Partition, position: i64) -> Result<(), Error> {
        let target: Positions = [(partition, position)].into_iter().collect();
        catch_up::<P>(&self.reader, &mut self.generation, &target).await
    }

    fn sql(&self, sql: &str, table: &str) -> String {
        let named = sql.replace("{schema}", self.live).replace("{live}", self.live);
        named.replace("{new}", self.copy).replace("{table}", table)
    }

    /// Compares the rows of a table, which are those of `position` in both generations.
    async fn compare(
        &mut self,
        hold: &Transaction<'_>,
        table: &str,
        partition: Partition,
        position: i64,
    ) -> Result<(), Error> {
        let of = partition.number();
        let count: i64 = hold.query_one(&self.sql(COUNT, table), &[&of]).await?.try_get("rows")?;
        self.tallies.checked(Check::ReadTables, u64::try_from(count).unwrap_or(0));
        let differences: i64 =
            hold.query_one(&self.sql(DIFFERENCES, table), &[&of]).await?.try_get("differences")?;
        if differences == 0 {
            return Ok(());
        }
        let name = format!("{}.{table}", self.live);
        let mut key_columns: Vec<String> = Vec::new();
        for row in hold.query(KEY_COLUMNS, &[&self.live, &table]).await? {
            key_columns.push(row.try_get("name")?);
        }
        let mut unequal: BTreeMap<String, Unequal> = BTreeMap::new();
        for (sql, is_live) in [(ONLY_LIVE, true), (ONLY_NEW, false)] {
            for row in hold.query(&self.sql(sql, table), &[&of]).await? {
                let Ok(Value::Object(row)) = serde_json::from_str(row.try_get("json")?) else { continue };
                let Unequal { expected, found } = unequal.entry(key_of(&row, &key_columns)).or_default();
                if is_live { found.push(row) } else { expected.push(row) }
            }
        }
        for (key, Unequal { expected, found }) in unequal {
            let mut pairs = (expected.into_iter(), found.into_iter());
            loop {
                let (expected, found) = (pairs.0.next(), pairs.1.next());
                let what = match (&expected, &found) {
                    (Some(_), Some(_)) => "is not the fold of its events",
                    (Some(_), None) => "is missing",
                    (None, Some(_)) => "follows from no event",
                    (None, None) => break,
                };
                let text = format!("partition {partition}: the row {key} of {name} {what}");
                let (expected, found) = columns(expected, found);
                self.tallies.find(Check::ReadTables, Finding { partition, position, text, expected, found });
            }
        }
        Ok(())
    }
}

/// The rows of a key that are in one generation only.
#[derive(Default)]
struct Unequal {
    expected: Vec<Map<String, Value>>,
    found: Vec<Map<String, Value>>,
}

/// The key of a row without its partition. A table without a key has the whole row as its key.
fn key_of(row: &Map<String, Value>, key_columns: &[String]) -> String {
    let own = key_columns.iter().filter(|column| *column != "partition");
    let values: Vec<_> = own.filter_map(|column| row.get(column)).map(plain).collect();
    if values.is_empty() { difference("", &plain(&Value::Object(row.clone()))).1 } else { values.join(" ") }
}

/// The columns that differ, of the expected row and of the row that was found.
fn columns(expected: Option<Map<String, Value>>, found: Option<Map<String, Value>>) -> (String, String) {
    let (Some(expected), Some(found)) = (&expected, &found) else {
        let shown = |row: Option<Map<String, Value>>| {
            row.map_or_else(|| "no row".to_owned(), |row| difference("", &plain(&Value::Object(row))).1)
        };
        return (shown(expected), shown(found));
    };
    let (mut shown_expected, mut shown_found) = (Vec::new(), Vec::new());
    for (column, value) in expected {
        let other = found.get(column).unwrap_or(&Value::Null);
        if value != other {
            let (value, other) = difference(&plain(value), &plain(other));
            shown_expected.push(format!("{column}: {value}"));
            shown_found.push(format!("{column}: {other}"));
        }
    }
    (shown_expected.join(", "), shown_found.join(", "))
}

/// A string without quotes; any other value as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(value: Value) -> Map<String, Value> {
        let Value::Object(row) = value else { panic!("{value} is no row") };
        row
    }

    #[test]
    fn only_the_columns_that_differ_are_shown() {
        let expected = row(json!({"partition": 1, "wallet_id": "wal_1", "balance": 10, "held": 0}));
        let found = row(json!({"partition": 1, "wallet_id": "wal_1", "balance": 20, "held": null}));
        let keys = ["partition".to_owned(), "wallet_id".to_owned()];
        assert_eq!(key_of(&found, &keys), "wal_1");
        let shown = columns(Some(expected.clone()), Some(found));
        assert_eq!(shown, ("balance: 10, held: 0".to_owned(), "balance: 20, held: null".to_owned()));
        let (shown, missing) = columns(Some(expected), None);
        assert!(shown.contains("wal_1") && missing == "no row", "{shown} {missing}");
        assert_eq!(key_of(&row(json!({"partition": 1, "pair": "x"})), &[]), r#"{"pair":"x","partition":1}"#);
    }
}
