//! Random tampering by the database's owner: `farthing audit verify` finds each change at its exact place. What is consistent
//! in itself, such as a rewritten end of the log, is found against a published head.
//!
//! Each kind of change has five trials, or as many as `FARTHING_TAMPERING_TRIALS` says. `FARTHING_FAULT_SEED` repeats the
//! choices of an earlier run; they are printed.

use farthing_tests::log::Head;
use farthing_tests::wait::eventually;
use serde_json::{Map, Value, json};

use crate::stored_log::StoredLog;
use crate::tampering_scene::{Scene, check};
use crate::{put_away, run};

/// The tables of the read models: the schema and the table.
const TABLES: &str = "\
SELECT n.nspname::text, c.relname::text FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN ledger.read_models AS m ON m.schema_name = n.nspname
WHERE c.relkind = 'r' AND c.relname <> 'checkpoint' ORDER BY 1, 2";

const COLUMNS: &str = "\
SELECT column_name::text, data_type::text FROM information_schema.columns
WHERE table_schema = $1 AND table_name = $2 AND column_name <> 'partition' AND is_generated = 'NEVER' ORDER BY 1";

/// The columns of a table's primary key but the partition, in the order of the table.
const KEY: &str = "\
SELECT a.attname::text FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = $1::text::regclass AND i.indisprimary AND a.attname <> 'partition' ORDER BY a.attnum";

fn trials() -> u32 {
    let given = std::env::var("FARTHING_TAMPERING_TRIALS").ok().and_then(|given| given.parse().ok());
    given.unwrap_or(5)
}

impl Scene {
    /// Tries a change of the log: it is found at the position that `change` returns, and nowhere before.
    async fn tries(&mut self, name: &str, change: impl Fn(&mut Self, &mut StoredLog) -> i64) {
        for trial in 0..trials() {
            let before = self.log().await;
            let mut after = before.clone();
            let position = change(self, &mut after);
            before.change(&mut self.sql, &after).await;
            // A published head may find more: an inserted event whose hash follows.
            let (code, report) = self.verify(&["--skip-read-tables"]).await;
            let place = json!([{"partition": before.partition, "position": position}]);
            assert_eq!((code, &report["first_broken"]), (Some(1), &place), "{name}, trial {trial}: {report}");
            after.change(&mut self.sql, &before).await;
        }
        eprintln!("{name}: {} of {} found at the exact position", trials(), trials());
    }
}

#[test]
fn every_change_of_an_event_is_found_at_its_position() {
    run(async {
        let mut scene = Scene::set().await;
        scene.sound().await;
        scene
            .tries("a digit changed", |scene, log| {
                let position = scene.position(log);
                let line = log.event(position).0.clone();
                log.event(position).0 = scene.another_digit(&line);
                position
            })
            .await;
        scene
            .tries("two events swapped", |scene, log| {
                let (one, other) = loop {
                    let (one, other) = (scene.position(log), scene.position(log));
                    if one < other {
                        break (one, other);
                    }
                };
                let (first, second) = (log.event(one).clone(), log.event(other).clone());
                if scene.random.bool() {
                    (*log.event(one), *log.event(other)) = (second, first);
                } else {
                    log.event(one).0 = second.0;
                    log.event(other).0 = first.0;
                }
                one
            })
            .await;
        scene
            .tries("an event deleted", |scene, log| {
                let position = scene.position(log);
                let (batch, index) = log.find(position);
                log.batches[batch].events.remove(index);
                let closes_up = scene.random.bool() && batch + 1 < log.batches.len();
                if closes_up {
                    for later in &mut log.batches[batch + 1..] {
                        later.first -= 1;
                    }
                }
                log.batches.retain(|batch| !batch.events.is_empty());
                position
            })
            .await;
        scene
            .tries("an event inserted with its own hash", |scene, log| {
                // In its own place, it would be the one that was there, and the other one inserted after it.
                let (copied, position) = loop {
                    let (copied, position) = (scene.position(log), scene.position(log));
                    if copied != position {
                        break (copied, position);
                    }
                };
                let copy = log.event(copied).clone();
                let (batch, index) = log.find(position);
                log.batches[batch].events.insert(index, copy);
                position
            })
            .await;
        scene
            .tries("an event inserted with a hash that follows, found at the next one", |scene, log| {
                let (copied, position) = (scene.position(log), scene.position(log));
                let line = log.event(copied).0.clone();
                let (batch, index) = log.find(position);
                let hash = log.hash_at(position, &line);
                log.batches[batch].events.insert(index, (line, hash));
                position + 1
            })
            .await;
        scene.sound().await;
        put_away(scene.instance).await;
    });
}

#[test]
fn an_end_of_the_log_that_was_deleted_or_rewritten_is_found_against_a_published_head() {
    run(async {
        let mut scene = Scene::set().await;
        for trial in 0..trials() {
            for rewrites in [false, true] {
                let before = scene.log().await;
                let mut after = before.clone();
                let (partition, last) = (before.partition, i64::try_from(before.len()).unwrap());
                let position = scene.random.i64(2..=last);
                let (hash, end) = if rewrites {
                    let line = after.event(position).0.clone();
                    let (start, rest) = line.split_once(r#""occurred_at":""#).unwrap();
                    // A digit of the microseconds: no state depends on it.
                    let (time, rest) = rest.split_once('Z').unwrap();
                    let (time, fraction) = time.split_once('.').unwrap();
                    let fraction = scene.another_digit(fraction);
                    after.event(position).0 = format!(r#"{start}"occurred_at":"{time}.{fraction}Z{rest}"#);
                    (after.hash_from(position), last)
                } else {
                    (after.cut_after(position - 1), position - 1)
                };
                let covered = scene.rewrite(&before, &after, (end, hash)).await;
                let log_alone = ["--skip-read-tables"];
                let (code, report) = scene.verify(&log_alone).await;
                assert_eq!((code, &report["first_broken"]), (Some(0), &json!([])), "trial {trial}: {report}");
                let (code, report) = scene.verify_log().await;
                let of = |heads: &Vec<Head>| {
                    heads.iter().find(|head| head.partition == partition).unwrap().position
                };
                let reached =
                    scene.published.iter().map(of).find(|published| *published >= position).unwrap();
                let found = if rewrites { reached } else { position };
                let place = json!([{"partition": partition, "position": found}]);
                assert_eq!((code, &report["first_broken"]), (Some(1), &place), "trial {trial}: {report}");
                assert!(check(&report, "published_heads")["broken"].as_u64() > Some(0), "{report}");
                assert_eq!(check(&report, "hash_chain")["verdict"], "verified", "{report}");
                assert_eq!(
                    proven(&report, partition),
                    scene.published_before(partition, position),
                    "{report}"
                );
                scene.put_back(&after, &before, &covered).await;
                if rewrites && position < last {
                    scene.rewritten_up_to_an_event(&before, after, position).await;
                }
            }
        }
        eprintln!("deleted and rewritten ends: {} of {} found", 2 * trials(), 2 * trials());
        scene.sound().await;
        put_away(scene.instance).await;
    });
}

/// The position up to which a report says that what was read is as it was published; 0 if it says nothing of it.
fn proven(report: &Value, partition: i16) -> i64 {
    let published = report["published"].as_array().unwrap();
    let own = published.iter().find(|head| head["partition"] == partition);
    own.map_or(0, |head| head["position"].as_i64().unwrap())
}

impl Scene {
    /// The last published position of a partition before `position`, or 0.
    fn published_before(&self, partition: i16, position: i64) -> i64 {
        let heads = self.published.iter().flatten().filter(|head| head.partition == partition);
        heads.map(|head| head.position).filter(|published| *published < position).max().unwrap_or(0)
    }

    /// The log `rewritten` from `position` on has its old hashes again after a random event: the chain breaks there, and later
    /// published heads are in the log. They prove nothing of what is before.
    async fn rewritten_up_to_an_event(
        &mut self,
        before: &StoredLog,
        mut rewritten: StoredLog,
        position: i64,
    ) {
        let (partition, last) = (before.partition, i64::try_from(before.len()).unwrap());
        let first_old = self.random.i64(position + 1..=last);
        let mut old = before.clone();
        for position in first_old..=last {
            rewritten.event(position).1.clone_from(&old.event(position).1);
        }
        let head = (last, old.event(last).1.clone());
        let covered = self.rewrite(before, &rewritten, head).await;
        let (code, report) = self.verify_log().await;
        let reached = self.published.iter().flatten().filter(|head| head.partition == partition);
        let reached = reached.map(|head| head.position).filter(|published| *published >= position).min();
        let found = reached.map_or(first_old, |published| published.min(first_old));
        let place = json!([{"partition": partition, "position": found}]);
        assert_eq!((code, &report["first_broken"]), (Some(1), &place), "{first_old}: {report}");
        assert_eq!(check(&report, "hash_chain")["broken"], 1, "{report}");
        assert_eq!(proven(&report, partition), self.published_before(partition, position), "{report}");
        self.put_back(&rewritten, before, &covered).await;
    }
}

#[test]
fn every_change_of_a_stored_state_is_found() {
    run(async {
        let mut scene = Scene::set().await;
        let rows = "SELECT s.partition, s.kind, s.id, s.body, s.generation, s.shape, c.position FROM ledger.state AS s
            JOIN ledger.checkpoints AS c ON c.partition = s.partition AND c.generation = s.generation
            ORDER BY s.partition, s.kind, s.id";
        let rows = scene.sql.query(rows, &[]).await.unwrap();
        for trial in 0..trials() {
            let row = &rows[scene.random.usize(..rows.len())];
            let (partition, kind, id): (i16, &str, &str) = (row.get(0), row.get(1), row.get(2));
            let (body, generation, shape): (&str, i16, i16) = (row.get(3), row.get(4), row.get(5));
            let delete = "DELETE FROM ledger.state WHERE partition = $1 AND kind = $2 AND id = $3";
            let put = "INSERT INTO ledger.state (partition, kind, id, body, generation, shape)
                VALUES ($1, $2, $3, $4, $5, $6)";
            let put = |id: String, body: String| {
                let sql = &scene.sql;
                async move {
                    sql.execute(put, &[&partition, &kind, &id, &body, &generation, &shape]).await.unwrap();
                }
            };
            let mut random = fastrand::Rng::with_seed(scene.random.u64(..));
            let named = match random.u8(..4) {
                0 => {
                    scene.sql.execute(delete, &[&partition, &kind, &id]).await.unwrap();
                    format!("the {kind} {id} is not stored")
                }
                1 => {
                    put(format!("{id}0"), body.to_owned()).await;
                    format!("the stored {kind} {id}0 follows from no event")
                }
                _ => {
                    scene.sql.execute(delete, &[&partition, &kind, &id]).await.unwrap();
                    let digits: Vec<_> =
                        body.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).collect();
                    let changed = match digits.get(random.usize(..digits.len().max(1))) {
                        Some((at, digit)) => {
                            let other = char::from(b'0' + (digit - b'0' + random.u8(1..10)) % 10);
                            format!("{}{other}{}", &body[..*at], &body[at + 1..])
                        }
                        None => format!("{body} "),
                    };
                    put(id.to_owned(), changed).await;
                    format!("the stored {kind} {id} is not the fold of its events")
                }
            };
            let (code, report) = scene.verify_log().await;
            let found = check(&report, "stored_states");
            assert_eq!(
                (code, &found["broken"], &found["verdict"]),
                (Some(1), &json!(1), &json!("broken")),
                "{report}"
            );
            let finding = &found["findings"][0];
            let place = (&finding["partition"], &finding["position"], &finding["text"]);
            let position: i64 = row.get(6);
            assert_eq!(
                place,
                (&json!(partition), &json!(position), &json!(named)),
                "trial {trial}: {report}"
            );
            assert_ne!(finding["expected"], finding["found"]);
            assert_eq!(report["first_broken"], json!([]), "the log itself is sound");
            scene.sql.execute(delete, &[&partition, &kind, &id]).await.unwrap();
            scene.sql.execute(delete, &[&partition, &kind, &format!("{id}0")]).await.unwrap();
            put(id.to_owned(), body.to_owned()).await;
        }
        eprintln!("stored states: {} of {} found", trials(), trials());
        scene.sound().await;
        put_away(scene.instance).await;
    });
}

/// Another value of a column.
fn another(column: &str, data_type: &str) -> Option<String> {
    Some(match data_type {
        "text" => format!("{column} || '0'"),
        "numeric" | "bigint" | "integer" => format!("{column} + 1"),
        "timestamp with time zone" => format!("{column} + interval '1 microsecond'"),
        "boolean" => format!("NOT {column}"),
        "jsonb" => "'{\"other\": 1}'".to_owned(),
        "bytea" => format!("{column} || '\\x00'"),
        _ => return None,
    })
}

/// The key of the row in the table `kept`, a copy of one of `table`: the names of its columns, and their values as a finding has
/// them. A table without a key has the whole row, of which a finding shows the beginning.
async fn key_of_kept(sql: &tokio_postgres::Client, table: &str) -> (Vec<String>, String) {
    let columns: Vec<String> =
        sql.query(KEY, &[&table]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let row = sql.query_one("SELECT row_to_json(kept)::text FROM kept", &[]).await.unwrap();
    let row: Map<String, Value> = serde_json::from_str(row.get(0)).unwrap();
    if columns.is_empty() {
        return (row.keys().cloned().collect(), String::new());
    }
    let values = columns.iter().map(|column| match &row[column] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let key = values.collect::<Vec<_>>().join(" ");
    (columns, key)
}

/// The names of the columns in a finding: `one: 1, other: 2`.
fn columns_in(shown: &Value) -> Vec<&str> {
    let shown = shown.as_str().unwrap();
    shown.split(", ").filter_map(|part| Some(part.split_once(": ")?.0)).collect()
}

#[test]
fn every_change_of_a_read_row_is_found() {
    run(async {
        let mut scene = Scene::set().await;
        let mut tables: Vec<(String, String)> = Vec::new();
        for row in scene.sql.query(TABLES, &[]).await.unwrap() {
            let (schema, table): (String, String) = (row.get(0), row.get(1));
            let has_rows = format!("SELECT EXISTS (SELECT FROM {schema}.{table})");
            eventually(&format!("{schema}.{table} has a row to change"), async || {
                scene.sql.query_one(&has_rows, &[]).await.unwrap().get::<_, bool>(0).then_some(())
            })
            .await;
            // A row is found at its checkpoint, which must not move during a trial.
            let behind = format!(
                "SELECT EXISTS (SELECT FROM ledger.heads AS h LEFT JOIN {schema}.checkpoint AS c USING (partition)
                    WHERE h.position > 0 AND c.position IS DISTINCT FROM h.position)"
            );
            eventually(&format!("{schema} has reached the end of the log"), async || {
                (!scene.sql.query_one(&behind, &[]).await.unwrap().get::<_, bool>(0)).then_some(())
            })
            .await;
            tables.push((schema, table));
        }
        assert!(tables.len() >= 23, "{tables:?}");
        let mut trial = 0;
        while trial < trials() {
            let (schema, table) = tables[scene.random.usize(..tables.len())].clone();
            let name = format!("{schema}.{table}");
            let row = format!("SELECT ctid::text, partition FROM {name} ORDER BY ctid");
            let rows = scene.sql.query(&row, &[]).await.unwrap();
            let row = &rows[scene.random.usize(..rows.len())];
            let (place, partition): (&str, i16) = (row.get(0), row.get(1));
            let columns = scene.sql.query(COLUMNS, &[&schema, &table]).await.unwrap();
            let column = &columns[scene.random.usize(..columns.len())];
            let (column, data_type): (&str, &str) = (column.get(0), column.get(1));
            let (at, deletes) = (format!("ctid = '{place}'"), scene.random.u8(..4) == 0);
            let changed = if deletes {
                format!("DELETE FROM {name} WHERE {at} RETURNING ctid::text")
            } else {
                let Some(value) = another(column, data_type) else { continue };
                format!(
                    "UPDATE {name} SET {column} = {value} WHERE {at} AND {column} IS NOT NULL RETURNING ctid::text"
                )
            };
            let keep = format!("CREATE TEMP TABLE kept AS SELECT * FROM {name} WHERE {at}");
            scene.sql.batch_execute(&keep).await.unwrap();
            let (key_columns, key) = key_of_kept(&scene.sql, &name).await;
            // A check of the table may refuse the change, and a null has no other value.
            let changed = scene.sql.query(&changed, &[]).await.unwrap_or_default();
            let Some(changed) = changed.first().map(|row| row.get::<_, String>(0)) else {
                scene.sql.batch_execute("DROP TABLE kept").await.unwrap();
                continue;
            };
            let only = partition.to_string();
            let (code, report) = scene.verify(&["--partition", &only]).await;
            let found = check(&report, "read_tables");
            assert_eq!((code, &found["verdict"]), (Some(1), &json!("broken")), "{name} {column}: {report}");
            assert!([Some(1), Some(2)].contains(&found["broken"].as_u64()), "{name} {column}: {report}");
            let changes_key = !deletes && key_columns.iter().any(|name| name == column);
            let what = if deletes || changes_key { "is missing" } else { "is not the fold of its events" };
            let named = format!("partition {partition}: the row {key} of {name} {what}");
            let findings = found["findings"].as_array().unwrap();
            // Two rows without a key whose beginnings are alike count as one that was changed.
            let is_named = |text: &str| match named.split_once("the row  of ") {
                Some((before, _)) => text.starts_with(before) && text.contains(&format!(" of {name} is ")),
                None => text == named,
            };
            let finding = findings.iter().find(|finding| is_named(finding["text"].as_str().unwrap()));
            let finding = finding.unwrap_or_else(|| panic!("{column}, {named}: {report}"));
            let shown = format!("SELECT position FROM {schema}.checkpoint WHERE partition = $1");
            let shown: i64 = scene.sql.query_one(&shown, &[&partition]).await.unwrap().get(0);
            assert_eq!(
                (&finding["partition"], &finding["position"]),
                (&json!(partition), &json!(shown)),
                "{report}"
            );
            assert_ne!(finding["expected"], finding["found"], "{report}");
            if !(deletes || changes_key) {
                // A generated column changes with the one that it is computed from.
                let (expected, found) = (columns_in(&finding["expected"]), columns_in(&finding["found"]));
                assert!(expected.contains(&column) && found.contains(&column), "{name} {column}: {report}");
            }
            let rest: Vec<_> =
                report["checks"].as_array().unwrap().iter().filter(|check| check["broken"] != 0).collect();
            assert_eq!(rest.len(), 1, "nothing else is broken: {report}");
            if !deletes {
                scene
                    .sql
                    .execute(&format!("DELETE FROM {name} WHERE ctid = '{changed}'"), &[])
                    .await
                    .unwrap();
            }
            let restore = format!("INSERT INTO {name} SELECT * FROM kept; DROP TABLE kept");
            scene.sql.batch_execute(&restore).await.unwrap();
            trial += 1;
        }
        eprintln!("read rows: {trial} of {trial} found");
        scene.sound().await;
        put_away(scene.instance).await;
    });
}
