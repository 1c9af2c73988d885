//! Every statement of the program is prepared against the migrated schema, and none scans a large table. The statements are
//! found in the source, so new ones are tested without being listed. Statements that are composed at run time are tested by
//! the plans that Postgres executes (`endpoints`).

mod endpoints;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::Stdio;

use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Log;
use farthing_tests::run;
use farthing_tests::statements::{self, Statement};
use serde_json::Value;
use tokio_postgres::Client;

/// Rows of each large table: enough to affect the planner.
const ROWS: i32 = 20_000;

/// Tables that stay small however large the ledger grows.
const SMALL: [&str; 14] = [
    "ledger.archives",
    "ledger.archive_restores",
    "ledger.heads",
    "ledger.checkpoints",
    "ledger.leases",
    "ledger.instance",
    "ledger.gateways",
    "ledger.gateway_lease",
    "ledger.read_models",
    "ledger.idle_spans",
    "ledger.server_key_mark",
    "webhooks.cursor",
    "checkpoint",
    "refinery_schema_history",
];

/// Statements whose purpose is to read a whole table.
const READS_ALL: [&str; 6] = [
    "ledger/log/src/batch_pages.rs BATCHES",
    "ledger/log/src/verify/stored_states.rs STATES",
    "projector/src/row_audit.rs COUNT",
    "projector/src/rebuild.rs DIFFERENCES",
    "projector/src/rebuild.rs COUNT",
    "projector/src/table_digest.rs ROWS",
];

/// Parts of statements that are composed at run time. Other tests execute them: of lists, sums and `audit verify`.
const BEGINNINGS: [&str; 7] = [
    "projector/src/requests/query.rs LIST",
    "projector/src/usage/request_sums.rs SUMS",
    "projector/src/row_comparison.rs END",
    "projector/src/row_comparison.rs DIFFERENCES",
    "projector/src/row_comparison.rs BOTH_SIDES",
    "projector/src/row_comparison.rs ONLY_LIVE",
    "projector/src/row_comparison.rs ONLY_NEW",
];

/// Files with statements that only Citus knows. The tests on a cluster execute them.
const ON_CITUS: [&str; 2] = ["schema/src/citus.rs ", "deploy/dev/src/launcher/citus.rs "];

/// Citus executes this statement, but cannot explain it. The tests of spend keys execute it.
const UNEXPLAINED: &str = "projector/src/spend_keys/write.rs ADD_SPENDING";

/// On Citus a gateway does not commit several partitions together, and this statement cannot be planned.
const NOT_ON_CITUS: &str = "ledger/log/src/appender/append_statement.rs APPEND_EVENTS";

const IS_CITUS: &str = "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";

const TABLES: &str = "\
SELECT n.nspname::text, c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2";

const COLUMNS: &str = "\
SELECT a.attname::text, format_type(a.atttypid, NULL),
       EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisunique
               AND i.indkey[i.indnkeyatts - 1] = a.attnum)
FROM pg_attribute AS a
WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    AND a.attidentity = '' ORDER BY a.attnum";

const CHECKS: &str =
    "SELECT conname::text FROM pg_constraint WHERE conrelid = $1::text::regclass AND contype IN ('c', 'f')";

/// A migrated database for these tests, with meaningless rows in each large table.
struct Filled {
    url: String,
    large: BTreeSet<String>,
}

async fn filled() -> &'static Filled {
    static FILLED: tokio::sync::OnceCell<Filled> = tokio::sync::OnceCell::const_new();
    FILLED.get_or_init(make).await
}

async fn make() -> Filled {
    let instance = Instance::shared().await;
    let url = instance.create_database("statements").await;
    operate(&url, &["migrate", "--mode", "test"]).await;
    let sql = Log::open(&url).await.sql;
    let mut large = BTreeSet::new();
    for table in sql.query(TABLES, &[]).await.unwrap() {
        let (schema, name): (String, String) = (table.get(0), table.get(1));
        let table = format!("{schema}.{name}");
        if !SMALL.contains(&table.as_str()) && !SMALL.contains(&name.as_str()) {
            fill(&sql, &table).await;
            large.insert(table);
        } else if name == "checkpoint" || name == "cursor" {
            // No read waits.
            let generation = if name == "checkpoint" { ", generation" } else { "" };
            let caught_up = format!(
                "INSERT INTO {table} (partition, position{generation})
                 SELECT partition, 1000000000{} FROM ledger.heads
                 ON CONFLICT (partition) DO UPDATE SET position = excluded.position",
                generation.replace("generation", "1")
            );
            sql.batch_execute(&caught_up).await.unwrap();
        }
    }
    sql.batch_execute(&format!(
        "UPDATE ledger.heads SET position = {ROWS}; UPDATE ledger.checkpoints SET position = {ROWS}; ANALYZE"
    ))
    .await
    .unwrap();
    Filled { url, large }
}

async fn operate(database_url: &str, arguments: &[&str]) -> Value {
    let mut command = tokio::process::Command::new(program());
    command.args(arguments).args(["--json", "--database-url", database_url]).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn fill(sql: &Client, table: &str) {
    for check in sql.query(CHECKS, &[&table]).await.unwrap() {
        let drop = format!("ALTER TABLE {table} DROP CONSTRAINT \"{}\"", check.get::<_, &str>(0));
        sql.batch_execute(&drop).await.unwrap();
    }
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for column in sql.query(COLUMNS, &[&table]).await.unwrap() {
        let (name, kind, unique): (String, String, bool) = (column.get(0), column.get(1), column.get(2));
        values.push(match (kind.as_str(), unique) {
            ("text", true) => "'x' || lpad(n::text, 10, '0')",
            ("text", false) => "'v' || n % 50",
            ("bigint" | "integer" | "numeric", true) => "n",
            ("bigint" | "integer" | "smallint" | "numeric", false) => "n % 50",
            ("boolean", _) => "n % 2 = 0",
            ("timestamp with time zone", _) => "now() - n * interval '1 second'",
            ("date", _) => "current_date - n",
            ("json", _) => "json_build_object('k', n::text)",
            ("jsonb", _) => "jsonb_build_object('k', n::text)",
            ("bytea", _) => "decode(lpad(to_hex(n), 64, '0'), 'hex')",
            ("text[]", _) => "ARRAY['v' || n % 50]",
            (other, _) => panic!("{table}.{name}: this test has no value of type {other}"),
        });
        names.push(name);
    }
    let insert = format!(
        "INSERT INTO {table} ({}) SELECT {} FROM generate_series(1, {ROWS}) AS n",
        names.join(", "),
        values.join(", ")
    );
    sql.batch_execute(&insert).await.unwrap_or_else(|error| panic!("{insert}: {error:?}"));
}

/// Whether a statement is not the beginning of one, and any Postgres knows it.
fn is_whole(statement: &Statement) -> bool {
    let name = statement.name.as_str();
    !BEGINNINGS.contains(&name) && !ON_CITUS.iter().any(|file| name.starts_with(file))
}

/// A statement with its template parameters filled in, once per read model.
fn instances_of(statement: &Statement, large: &BTreeSet<String>) -> BTreeSet<String> {
    let mut statement = statement.clone();
    // In a new database, the schema of each read model is its name.
    for (schema, _) in large.iter().filter_map(|table| table.split_once('.')) {
        statement.sql = statement.sql.replace(&format!("{{{schema}}}"), schema);
    }
    if !["{schema}", "{live}", "{new}", "{table}"].iter().any(|place| statement.sql.contains(place)) {
        return [statement.sql].into();
    }
    let schemas_and_tables = large.iter().filter_map(|table| table.split_once('.'));
    let of_models = schemas_and_tables
        .filter(|(schema, _)| !["ledger", "personal", "test_processor", "webhooks"].contains(schema));
    let of_models: Vec<_> = of_models.collect();
    let here = |schema: &str| {
        schema == statement.folder || of_models.iter().all(|(other, _)| *other != statement.folder)
    };
    let filled = of_models.iter().filter(|(schema, _)| here(schema)).map(|(schema, table)| {
        let sql = statement.sql.replace("{schema}", schema).replace("{live}", schema);
        sql.replace("{new}", schema).replace("{table}", table)
    });
    filled.collect()
}

/// Prepares a statement and returns the large tables that its generic plan scans.
async fn scanned(sql: &Client, statement: &str, large: &BTreeSet<String>) -> Result<Vec<String>, String> {
    let failed = |error: tokio_postgres::Error| {
        error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
    };
    if statement.starts_with("COPY") {
        // Postgres checks the columns only when the copy begins; dropping the writer cancels it.
        let copy = sql.copy_in::<_, &'static [u8]>(statement).await.map_err(failed)?;
        drop(copy);
        return Ok(Vec::new());
    }
    sql.batch_execute(&format!("PREPARE looked_at AS {statement}")).await.map_err(failed)?;
    let count = "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'looked_at'";
    let parameters: i32 = sql.query_one(count, &[]).await.map_err(failed)?.get(0);
    let mut explain = "EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE looked_at".to_owned();
    for number in 0..parameters {
        let _ = write!(explain, "{}", if number == 0 { "(NULL" } else { ", NULL" });
    }
    explain.push_str(if parameters == 0 { "" } else { ")" });
    let rows = sql.simple_query(&explain).await.map_err(failed)?;
    sql.batch_execute("DEALLOCATE looked_at").await.map_err(failed)?;
    let plan = rows.iter().find_map(|row| match row {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: Value = serde_json::from_str(plan.unwrap_or_default()).map_err(|error| error.to_string())?;
    Ok(scans(&plan, large))
}

/// Plans a statement of the database `sql` for values of its parameters. On a Citus cluster only then the nodes are known,
/// and the statements for them.
async fn planned(sql: &Client, statement: &str) -> Result<(), tokio_postgres::Error> {
    if statement.starts_with("COPY") {
        return sql.copy_in::<_, &'static [u8]>(statement).await.map(drop);
    }
    sql.batch_execute(&format!("PREPARE planned AS {statement}")).await?;
    let types = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'planned'";
    let types: Vec<String> = sql.query_one(types, &[]).await?.get(0);
    let values: Vec<_> = types.iter().map(|name| value_of(name)).collect();
    let values = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
    let mut explained = sql.batch_execute(&format!("EXPLAIN EXECUTE planned{values}")).await;
    // Citus explains no insertion that joins its parameters with a table, but carries it out.
    let is_refused = explained.as_ref().is_err_and(|error| {
        error.as_db_error().is_some_and(|error| error.message() == "could not create distributed plan")
    });
    if is_refused && statement.trim_start().starts_with("INSERT") {
        sql.batch_execute("BEGIN").await?;
        explained = sql.batch_execute(&format!("EXECUTE planned{values}")).await;
        sql.batch_execute("ROLLBACK").await?;
    }
    sql.batch_execute("DEALLOCATE planned").await?;
    explained
}

/// A value of an SQL type.
fn value_of(name: &str) -> &'static str {
    match name {
        "smallint" | "integer" | "bigint" | "numeric" | "double precision" => "1",
        "text" => "'1'",
        "boolean" => "true",
        "bytea" => "'\\x00'",
        "json" | "jsonb" => "'[]'",
        "timestamp with time zone" => "now()",
        "smallint[]" | "integer[]" | "bigint[]" | "numeric[]" => "'{1}'",
        "text[]" => "'{v}'",
        "bytea[]" => "ARRAY['\\x00'::bytea]",
        _ => "NULL",
    }
}

#[test]
fn every_statement_can_be_planned_on_a_running_instance() {
    run(async {
        let sql = Instance::shared().await.log().await.sql;
        let tables = sql.query(TABLES, &[]).await.unwrap();
        let tables: Vec<(&str, &str)> = tables.iter().map(|table| (table.get(0), table.get(1))).collect();
        // The live read models, without those that another test builds.
        let is_live = |schema: &str| tables.contains(&(schema, "checkpoint")) && !schema.contains("_g");
        let live = tables.iter().filter(|(schema, _)| is_live(schema));
        let tables: BTreeSet<_> = live.map(|(schema, name)| format!("{schema}.{name}")).collect();
        let mut wrong = Vec::new();
        let is_citus: bool = sql.query_one(IS_CITUS, &[]).await.unwrap().get(0);
        let is_left_out = |name: &str| name == UNEXPLAINED || (is_citus && name == NOT_ON_CITUS);
        let explained = |statement: &Statement| is_whole(statement) && !is_left_out(&statement.name);
        for statement in statements::of_the_program().statements.into_iter().filter(explained) {
            for instance in instances_of(&statement, &tables) {
                if let Err(error) = planned(&sql, &instance).await {
                    let error = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
                    wrong.push(format!("{}: {error}", statement.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// The large tables that a plan scans.
fn scans(plan: &Value, large: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    walk(plan, &mut |node| {
        let table = format!(
            "{}.{}",
            node["Schema"].as_str().unwrap_or_default(),
            node["Relation Name"].as_str().unwrap_or_default()
        );
        if node["Node Type"] == "Seq Scan" && large.contains(&table) {
            found.push(table);
        }
    });
    found
}

fn walk(plan: &Value, look: &mut impl FnMut(&Value)) {
    match plan {
        Value::Array(parts) => parts.iter().for_each(|part| walk(part, look)),
        Value::Object(parts) => {
            look(plan);
            parts.values().for_each(|part| walk(part, look));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_statement_stands_in_a_constant() {
    let found = statements::of_the_program();
    assert!(found.astray.is_empty(), "SQL outside of constants:\n{}", found.astray.join("\n"));
    for name in [
        "ledger/log/src/appender/append_statement.rs APPEND",
        "projector/src/requests/query.rs FIND",
        "projector/src/requests/write.rs COPY_OPENED",
        "projector/src/connections/write.rs UPDATE_WALLETS",
    ] {
        assert!(found.statements.iter().any(|statement| statement.name == name), "{name} was not found");
    }
    for name in READS_ALL.iter().chain(&BEGINNINGS) {
        assert!(found.statements.iter().any(|statement| statement.name == *name), "there is no {name}");
    }
}

#[test]
fn a_statement_for_several_partitions_appends_where_the_head_is_as_expected_and_nowhere_else() {
    run(async {
        let all = statements::of_the_program().statements;
        let is_it = |name: &str| name == "ledger/log/src/appender/append_statement.rs APPEND_EVENTS";
        let append = &all.iter().find(|statement| is_it(&statement.name)).unwrap().sql;
        let mut sql = Log::open(&filled().await.url).await.sql;
        // It is rolled back.
        let sql = sql.transaction().await.unwrap();
        let heads = "SELECT partition, position, epoch, shape, hash FROM ledger.heads ORDER BY partition";
        let before = sql.query(heads, &[]).await.unwrap();
        assert!(before.len() >= 4);
        let partitions: Vec<i16> = before.iter().take(4).map(|head| head.get(0)).collect();
        let mut positions: Vec<i64> = before.iter().take(4).map(|head| head.get(1)).collect();
        let mut epochs: Vec<i64> = before.iter().take(4).map(|head| head.get(2)).collect();
        positions[1] -= 1;
        epochs[2] += 1;
        let hashes: Vec<Vec<u8>> = (1..=4).map(|byte| vec![byte; 32]).collect();
        let (counts, now) = (vec![1_i32; 4], vec![chrono::Utc::now(); 4]);
        let (writers, lines) = (vec!["a test"; 4], vec![b"{}".to_vec(); 4]);
        let append = async |shape: i64| {
            let rows = sql
                .query(
                    append.as_str(),
                    &[
                        &partitions,
                        &positions,
                        &epochs,
                        &counts,
                        &hashes,
                        &now,
                        &writers,
                        &lines,
                        &hashes,
                        &shape,
                    ],
                )
                .await
                .unwrap();
            let mut appended: Vec<i16> = rows.iter().map(|row| row.get(0)).collect();
            appended.sort_unstable();
            appended
        };
        let shape: i64 = before[0].get(3);
        assert_eq!(append(shape + 1).await, Vec::<i16>::new(), "another shape of states");
        assert_eq!(append(shape).await, [partitions[0], partitions[3]]);
        assert_eq!(append(shape).await, Vec::<i16>::new(), "the same again");
        let after = sql.query(heads, &[]).await.unwrap();
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            let has_moved = at == 0 || at == 3;
            let position: i64 = before.get(1);
            assert_eq!(after.get::<_, i64>(1), position + i64::from(has_moved), "{at}");
            let hash: Vec<u8> = if has_moved { hashes[at].clone() } else { before.get(4) };
            assert_eq!(after.get::<_, Vec<u8>>(4), hash, "{at}");
            let batch = "SELECT count, writer, events, hashes FROM ledger.batches WHERE partition = $1 AND first_position > $2";
            let rows = sql.query(batch, &[&before.get::<_, i16>(0), &position]).await.unwrap();
            assert_eq!(rows.len(), usize::from(has_moved), "{at}");
            for row in rows {
                let written = (row.get(0), row.get(1), row.get(2), row.get(3));
                assert_eq!(written, (1_i32, "a test", b"{}".to_vec(), hashes[at].clone()));
            }
        }
    });
}

#[test]
fn every_statement_can_be_prepared_and_none_scans_a_large_table() {
    run(async {
        let Filled { url, large } = filled().await;
        let sql = Log::open(url).await.sql;
        sql.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
        let mut wrong = Vec::new();
        for statement in statements::of_the_program().statements.into_iter().filter(is_whole) {
            let instances = instances_of(&statement, large);
            assert!(!instances.is_empty(), "{}", statement.name);
            for instance in instances {
                match scanned(&sql, &instance, large).await {
                    Err(error) => wrong.push(format!("{}: {error}", statement.name)),
                    Ok(tables) if tables.is_empty() || READS_ALL.contains(&statement.name.as_str()) => {}
                    Ok(tables) => wrong.push(format!("{} scans {}", statement.name, tables.join(", "))),
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // The check itself detects a scan.
        for table in ["ledger.batches", "ledger.state", "requests.opened", "requests.ended"] {
            let worst = format!("SELECT count(*) FROM {table} AS t WHERE t::text = $1");
            assert_eq!(scanned(&sql, &worst, large).await, Ok(vec![table.to_owned()]));
        }
        scanned(&sql, "SELECT no_such_column FROM ledger.batches", large).await.unwrap_err();
    });
}
