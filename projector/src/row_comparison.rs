//! Compares the rows of a table in two generations, a range of them at a time, in the order of an index.

use std::collections::BTreeMap;

use farthing_core::partition::Partition;
use farthing_log::verify::verdict::{Check, Finding, Tallies, difference};
use serde_json::{Map, Value};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};

use crate::engine::Error;

/// Rows that are compared at once. Few in debug builds: the tables of tests have several ranges.
const ROWS: i64 = if cfg!(debug_assertions) { 10 } else { 10_000 };

/// The columns of the index of the table $2 in the schema $1, which was just made, that the ranges follow, with their types: the
/// primary key, or the first index of all rows.
const INDEX_COLUMNS: &str = "\
WITH chosen AS (
    SELECT i.* FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid
    JOIN pg_index AS i ON i.indrelid = c.oid JOIN pg_class AS x ON x.oid = i.indexrelid
    WHERE n.nspname = $1::text AND c.relname = $2::text AND i.indpred IS NULL AND i.indexprs IS NULL
    ORDER BY i.indisprimary DESC, x.relname LIMIT 1)
SELECT a.attname::text AS name, quote_ident(a.attname) AS quoted, format_type(a.atttypid, a.atttypmod) AS type,
       chosen.indisprimary AS is_key
FROM chosen JOIN pg_attribute AS a ON a.attrelid = chosen.indrelid
JOIN unnest(chosen.indkey::int2[]) WITH ORDINALITY AS k (number, place) ON k.number = a.attnum
WHERE a.attname <> 'partition' ORDER BY k.place";

/// Those of the columns $3 of the table $2 in the schema $1 that may be null. A row without a value would be in no range.
const NULLABLE: &str = "\
SELECT wanted.name FROM unnest($3::text[]) AS wanted (name)
WHERE NOT EXISTS (
    SELECT 1 FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid
    JOIN pg_attribute AS a ON a.attrelid = c.oid
    WHERE n.nspname = $1::text AND c.relname = $2::text AND a.attname = wanted.name AND a.attnotnull)";

/// The columns of the last row of the next range of partition $1 after the one with the columns $2, as texts. None if the next
/// range is the last one.
const END: &str = "\
SELECT ARRAY[{texts}] AS columns FROM {live}.{table} AS l WHERE l.partition = $1 AND {after_l}
ORDER BY {order} OFFSET $3 LIMIT 1";

/// The number of rows of the range, and of those that are in one generation only. Equal rows are counted separately.
const DIFFERENCES: &str = "\
SELECT count(*) FILTER (WHERE side = 1) AS rows,
       (SELECT COALESCE(sum(abs(surplus)), 0)::bigint FROM (
           SELECT sum(side) AS surplus FROM both_sides GROUP BY digest HAVING sum(side) <> 0) AS unequal) AS differences
FROM both_sides";

/// Both generations of the range: partition $1, after the columns $2, up to the columns $3.
const BOTH_SIDES: &str = "\
WITH both_sides AS MATERIALIZED (
    SELECT 1 AS side, sha256(convert_to(l::text, 'UTF8')) AS digest FROM {live}.{table} AS l
    WHERE l.partition = $1 AND {after_l} AND {to_l}
    UNION ALL
    SELECT -1, sha256(convert_to(n::text, 'UTF8')) FROM {new}.{table} AS n
    WHERE n.partition = $1 AND {after_n} AND {to_n})
";

/// A row as a JSON object whose values are texts, since a JSON number may be beyond what can be read.
const AS_TEXTS: &str = "(SELECT jsonb_object_agg(key, value)::text FROM jsonb_each_text(to_jsonb({row})))";

/// Rows of the range that are in the live generation only, as text and as JSON.
const ONLY_LIVE: &str = "\
SELECT l::text AS row, {json_l} AS json FROM {live}.{table} AS l WHERE l.partition = $1 AND {after_l} AND {to_l}
EXCEPT ALL
SELECT n::text, {json_n} FROM {new}.{table} AS n WHERE n.partition = $1 AND {after_n} AND {to_n}
ORDER BY row LIMIT 100";

/// Rows of the range that are in the new generation only.
const ONLY_NEW: &str = "\
SELECT n::text AS row, {json_n} AS json FROM {new}.{table} AS n WHERE n.partition = $1 AND {after_n} AND {to_n}
EXCEPT ALL
SELECT l::text, {json_l} FROM {live}.{table} AS l WHERE l.partition = $1 AND {after_l} AND {to_l}
ORDER BY row LIMIT 100";

/// A column of the index.
struct Column {
    name: String,
    /// The name in a statement.
    quoted: String,
    kind: String,
}

/// The comparison of a table of a partition.
pub(crate) struct Comparison {
    partition: Partition,
    /// The schemas of the live and of the new generation.
    schemas: [String; 2],
    table: &'static str,
    columns: Vec<Column>,
    /// Whether the columns are the primary key.
    has_key: bool,
    /// The columns of the last row that was compared.
    after: Option<Vec<String>>,
    is_done: bool,
}

impl Comparison {
    pub(crate) async fn new(
        client: &Client,
        partition: Partition,
        live: &str,
        new: &str,
        table: &'static str,
    ) -> Result<Self, Error> {
        let (mut columns, mut has_key) = (Vec::new(), false);
        for row in client.query(INDEX_COLUMNS, &[&new, &table]).await? {
            let (name, quoted) = (row.try_get("name")?, row.try_get("quoted")?);
            columns.push(Column { name, quoted, kind: row.try_get("type")? });
            has_key = row.try_get("is_key")?;
        }
        let schemas = [live.to_owned(), new.to_owned()];
        Ok(Self { partition, schemas, table, columns, has_key, after: None, is_done: false })
    }

    /// Whether every range was compared.
    pub(crate) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Compares the next range, whose rows are those of `position` in both generations.
    pub(crate) async fn next(
        &mut self,
        hold: &Transaction<'_>,
        position: i64,
        tallies: &mut Tallies,
    ) -> Result<(), Error> {
        hold.batch_execute("SET LOCAL work_mem = '64MB'").await?;
        let of = self.partition.number();
        let after = self.after.take();
        if after.is_none() {
            self.find_nullable(hold, position, tallies).await?;
        }
        let end: Option<Vec<String>> = if self.columns.is_empty() {
            None
        } else {
            let row = hold.query_opt(&self.sql(END), &[&of, &after, &(ROWS - 1)]).await?;
            row.map(|row| row.try_get("columns")).transpose()?
        };
        let range: [&(dyn ToSql + Sync); 3] = [&of, &after, &end];
        let counted = hold.query_one(&self.sql(&[BOTH_SIDES, DIFFERENCES].concat()), &range).await?;
        let (rows, differences): (i64, i64) = (counted.try_get("rows")?, counted.try_get("differences")?);
        tallies.checked(Check::ReadTables, u64::try_from(rows).unwrap_or(0));
        if differences > 0 {
            self.name_differences(hold, &range, position, tallies).await?;
        }
        self.is_done = end.is_none();
        self.after = end;
        Ok(())
    }

    /// The statement with the names of the table and the conditions of the range.
    fn sql(&self, sql: &str) -> String {
        let [live, new] = &self.schemas;
        let all = |form: &dyn Fn(usize, &Column) -> String| {
            let each: Vec<_> =
                self.columns.iter().enumerate().map(|(place, column)| form(place, column)).collect();
            each.join(", ")
        };
        // Postgres leaves the condition of a null parameter out when it plans with the parameters.
        let bound = |alias: &str, comparison: &str, parameter: u8| {
            if self.columns.is_empty() {
                return format!("${parameter}::text[] IS NULL");
            }
            let names = all(&|_, column| format!("{alias}.{}", column.quoted));
            let values =
                all(&|place, column| format!("(${parameter}::text[])[{}]::{}", place + 1, column.kind));
            format!("(${parameter}::text[] IS NULL OR ({names}) {comparison} ({values}))")
        };
        let mut text = sql.replace("{live}", live).replace("{new}", new).replace("{table}", self.table);
        for alias in ["l", "n"] {
            text = text.replace(&format!("{{json_{alias}}}"), &AS_TEXTS.replace("{row}", alias));
            text = text.replace(&format!("{{after_{alias}}}"), &bound(alias, ">", 2));
            text = text.replace(&format!("{{to_{alias}}}"), &bound(alias, "<=", 3));
        }
        let texts = all(&|_, column| format!("l.{}::text", column.quoted));
        text.replace("{texts}", &texts).replace("{order}", &all(&|_, column| format!("l.{}", column.quoted)))
    }

    /// Reports columns of the live table that may be null, and may not by its definition.
    async fn find_nullable(
        &self,
        hold: &Transaction<'_>,
        position: i64,
        tallies: &mut Tallies,
    ) -> Result<(), Error> {
        let (partition, live) = (self.partition, &self.schemas[0]);
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        for row in hold.query(NULLABLE, &[live, &self.table, &names]).await? {
            let name: String = row.try_get("name")?;
            let text = format!(
                "partition {partition}: the column {name} of {live}.{} may be null, so rows cannot be compared by it",
                self.table
            );
            let (expected, found) = ("not null".to_owned(), "nullable, or missing".to_owned());
            tallies.find(Check::ReadTables, Finding { partition, position, text, expected, found });
        }
        Ok(())
    }

    /// Reports the rows of a range that differ.
    async fn name_differences(
        &self,
        hold: &Transaction<'_>,
        range: &[&(dyn ToSql + Sync); 3],
        position: i64,
        tallies: &mut Tallies,
    ) -> Result<(), Error> {
        let partition = self.partition;
        let name = format!("{}.{}", self.schemas[0], self.table);
        let key_columns: Vec<&str> =
            self.columns.iter().filter(|_| self.has_key).map(|column| column.name.as_str()).collect();
        let mut unequal: BTreeMap<String, Unequal> = BTreeMap::new();
        for (sql, is_live) in [(ONLY_LIVE, true), (ONLY_NEW, false)] {
            for row in hold.query(&self.sql(sql), range).await? {
                let whole: &str = row.try_get("row")?;
                let row = match serde_json::from_str(row.try_get("json")?) {
                    Ok(Value::Object(row)) => row,
                    _ => [("row".to_owned(), Value::from(whole))].into_iter().collect(),
                };
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
                tallies.find(Check::ReadTables, Finding { partition, position, text, expected, found });
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
fn key_of(row: &Map<String, Value>, key_columns: &[&str]) -> String {
    let values: Vec<_> = key_columns.iter().filter_map(|column| row.get(*column)).map(plain).collect();
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
        let keys = ["wallet_id"];
        assert_eq!(key_of(&found, &keys), "wal_1");
        let shown = columns(Some(expected.clone()), Some(found));
        assert_eq!(shown, ("balance: 10, held: 0".to_owned(), "balance: 20, held: null".to_owned()));
        let (shown, missing) = columns(Some(expected), None);
        assert!(shown.contains("wal_1") && missing == "no row", "{shown} {missing}");
        assert_eq!(key_of(&row(json!({"partition": 1, "pair": "x"})), &[]), r#"{"pair":"x","partition":1}"#);
    }
}
