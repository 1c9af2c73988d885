//! The log is gap-free, chained and append-only for every database role.

use chrono::{DateTime, TimeDelta, Utc};
use farthing_tests::books::Books;
use farthing_tests::instance::Instance;
use farthing_tests::log::{Logged, check_chain};
use farthing_tests::merchant::Merchant;
use farthing_tests::provider::json;
use farthing_tests::run;
use serde_json::json;

async fn merchant_with_traffic() -> Merchant {
    let merchant = Merchant::funded("10").await;
    let customer = merchant.customer("10").await;
    let meter = merchant.call_meter("0.01").await;
    let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
    for _ in 0..10 {
        merchant.call(&merchant.billing(&customer, &meter), &endpoint.url).await.expect(200);
    }
    merchant
}

/// The longest half of a measurement of Postgres's clock that counts.
const MEASUREMENT: TimeDelta = TimeDelta::milliseconds(500);

#[test]
fn positions_have_no_gap_and_every_hash_chains_to_the_previous_one() {
    run(async {
        let merchant = merchant_with_traffic().await;
        // One snapshot of the heads and the events.
        merchant.log.sql.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        let heads = merchant.log.heads().await;
        let events = merchant.log.after(0).await;
        merchant.log.sql.batch_execute("COMMIT").await.unwrap();
        check_chain(&events, &heads);
        let books = Books::of(&events);
        assert!(books.requests.len() >= 10);
        // A merchant's test clock may be ahead of the machine's.
        let ahead: std::collections::HashSet<_> = events
            .iter()
            .filter(|event| event.kind == "clock.advanced")
            .map(|event| &event.merchant_id)
            .collect();
        let on_time = |event: &&Logged| !ahead.contains(&event.merchant_id);
        // A process takes Postgres's time at half of its measurement, so it may be ahead by the other half.
        let in_order = |event: &Logged| event.recorded_at + MEASUREMENT >= event.occurred_at;
        let late: Vec<_> = events.iter().filter(on_time).filter(|event| !in_order(event)).collect();
        assert!(late.is_empty(), "{late:?}");
        assert!(events.iter().all(|event| event.schema_version == 1));
        let writers: std::collections::HashSet<_> =
            events.iter().map(|event| event.writer.as_str()).collect();
        assert!(writers.len() >= 2, "the writers are named: {writers:?}");
    });
}

#[test]
fn the_states_are_a_fold_of_the_log() {
    run(async {
        let merchant = merchant_with_traffic().await;
        merchant.log.sql.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        let stored = merchant.log.checkpoints().await;
        let mut events = merchant.log.after(0).await;
        events.retain(|event| event.position <= stored[usize::try_from(event.partition).unwrap()]);
        let books = Books::of(&events);
        let wallets = merchant.log.stored_states("wallet").await;
        let open = merchant.log.stored_states("request").await;
        merchant.log.sql.batch_execute("COMMIT").await.unwrap();
        assert_eq!(wallets.len(), books.wallets.len());
        for (id, state) in wallets {
            let account = &books.wallets[&id];
            let state = (
                farthing_tests::books::decimal(&state["balance"]),
                farthing_tests::books::decimal(&state["held"]),
            );
            assert_eq!(state, (account.balance(), account.held), "{id}");
        }
        let pending =
            books.requests.iter().filter(|(_, request)| request.status() == "pending").map(|(id, _)| id);
        assert!(pending.eq(open.iter().map(|(id, _)| id)), "open requests");
    });
}

#[test]
fn no_role_can_change_or_remove_an_event() {
    run(async {
        let merchant = merchant_with_traffic().await;
        let sql = &merchant.log.sql;
        let count = "SELECT count(*) FROM ledger.events WHERE position <= 5";
        let before: i64 = sql.query_one(count, &[]).await.unwrap().get(0);
        for prelude in ["", "SET session_replication_role = replica;"] {
            for statement in [
                "UPDATE ledger.batches SET events = '{}' WHERE first_position = 1",
                "UPDATE ledger.batches SET first_position = -first_position",
                "UPDATE ledger.batches SET writer = 'x' WHERE false",
                "DELETE FROM ledger.batches WHERE first_position = 1",
                "DELETE FROM ledger.batches WHERE false",
                "TRUNCATE ledger.batches",
                "TRUNCATE ledger.batches CASCADE",
            ] {
                let refused =
                    sql.batch_execute(&format!("BEGIN;{prelude}{statement};COMMIT")).await.unwrap_err();
                let message = refused.as_db_error().unwrap().message().to_owned();
                assert!(message.contains("append-only"), "{statement}: {message}");
                sql.batch_execute("ROLLBACK").await.unwrap();
            }
        }
        assert_eq!(sql.query_one(count, &[]).await.unwrap().get::<_, i64>(0), before);
        for (role, statement) in [
            ("farthing_gateway", "UPDATE ledger.batches SET events = '{}'"),
            ("farthing_gateway", "DELETE FROM ledger.batches"),
            ("farthing_gateway", "TRUNCATE ledger.batches"),
            ("farthing_gateway", "ALTER TABLE ledger.batches DISABLE TRIGGER ALL"),
            ("farthing_gateway", "DROP TABLE ledger.batches"),
            ("farthing_gateway", "UPDATE ledger.instance SET mode = 'live'"),
            ("farthing_projector", "INSERT INTO ledger.batches (partition) VALUES (0)"),
            ("farthing_projector", "UPDATE ledger.batches SET events = '{}'"),
            ("farthing_projector", "UPDATE ledger.heads SET position = 0"),
            ("farthing_projector", "UPDATE ledger.state SET body = '{}'"),
        ] {
            let refused = sql
                .batch_execute(&format!("BEGIN; SET LOCAL ROLE {role}; {statement}; COMMIT"))
                .await
                .unwrap_err();
            let code = refused.code().unwrap().code().to_owned();
            assert_eq!(code, "42501", "{role}: {statement}: {refused}");
            sql.batch_execute("ROLLBACK").await.unwrap();
        }
    });
}

/// Tables of which a row is updated again and again, with the rows that this test updates and the update.
const UPDATED_OFTEN: [[&str; 3]; 4] = [
    ["ledger.state", "kind IN ('wallet', 'spending', 'position')", "body = body || ' ', shape = shape + 1"],
    ["ledger.heads", "true", "position = position + 1, hash = hash || hash, epoch = epoch + 1"],
    ["ledger.checkpoints", "true", "position = position + 1, epoch = epoch + 1"],
    ["ledger.leases", "true", "expires_at = clock_timestamp(), term = term + 1"],
];

#[test]
fn the_updates_of_an_append_and_of_a_checkpoint_touch_no_index() {
    run(async {
        let merchant = merchant_with_traffic().await;
        merchant.log.stored().await;
        // Another connection, for a transaction of its own. A copy has the indexes, and pages with room.
        let sql = merchant.instance.log().await.sql;
        for [table, rows, update] in UPDATED_OFTEN {
            sql.batch_execute(&format!(
                "BEGIN; CREATE TEMPORARY TABLE copied (LIKE {table} INCLUDING ALL) WITH (fillfactor = 40) ON COMMIT DROP"
            ))
            .await
            .unwrap();
            let columns: String = sql.query_one(WRITTEN_COLUMNS, &[&table]).await.unwrap().get(0);
            let copied = sql
                .execute(
                    &format!(
                        "INSERT INTO copied ({columns}) SELECT {columns} FROM {table} WHERE {rows} LIMIT 30"
                    ),
                    &[],
                )
                .await
                .unwrap();
            let updated = sql.execute(&format!("UPDATE copied SET {update}"), &[]).await.unwrap();
            let hot: i64 = sql.query_one(HOT_UPDATES, &[]).await.unwrap().get(0);
            assert!(copied > 0 && updated == copied, "{table}");
            assert_eq!(u64::try_from(hot), Ok(updated), "{table}: an index has a column that changes");
            sql.batch_execute("ROLLBACK").await.unwrap();
        }
    });
}

/// The columns of the table $1 that are not generated.
const WRITTEN_COLUMNS: &str = "\
SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''";

/// The updates of this transaction that touched no index (heap-only tuples).
const HOT_UPDATES: &str = "SELECT pg_stat_get_xact_tuples_hot_updated('copied'::regclass)";

#[test]
fn the_view_shows_the_events_that_the_batches_hold() {
    run(async {
        let merchant = merchant_with_traffic().await;
        let view =
            "SELECT position, kind, schema_version, key, merchant_id, occurred_at, recorded_at, body::text,
                writer, hash FROM ledger.events WHERE merchant_id = $1 ORDER BY position";
        merchant.nothing_is_held().await;
        let events = merchant.events().await;
        let rows = merchant.log.sql.query(view, &[&merchant.id]).await.unwrap();
        assert_eq!(rows.len(), events.len());
        assert!(events.len() > 20);
        for (row, event) in rows.iter().zip(events) {
            let ends = (row.get("position"), row.get("schema_version"));
            assert_eq!(ends, (event.position, event.schema_version));
            let texts =
                ["kind", "key", "merchant_id", "body", "writer"].map(|name| row.get::<_, String>(name));
            assert_eq!(texts, [event.kind, event.key, event.merchant_id, event.text, event.writer]);
            let times = ["occurred_at", "recorded_at"].map(|name| row.get::<_, DateTime<Utc>>(name));
            assert_eq!(times, [event.occurred_at, event.recorded_at]);
            assert_eq!(row.get::<_, &[u8]>("hash"), event.hash);
        }
        let always = "SELECT count(*) FROM pg_trigger
            WHERE tgrelid = 'ledger.batches'::regclass AND tgenabled = 'A'";
        assert_eq!(merchant.log.sql.query_one(always, &[]).await.unwrap().get::<_, i64>(0), 3);
    });
}

#[test]
fn log_verify_accepts_the_log() {
    run(async {
        let merchant = merchant_with_traffic().await;
        let report = merchant.instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
    });
}

#[test]
fn a_postgres_error_is_shown_with_message_and_sqlstate_but_without_values() {
    run(async {
        let log = Instance::shared().await.log().await;
        log.sql.batch_execute("CREATE TEMPORARY TABLE secrets (secret text PRIMARY KEY)").await.unwrap();
        let insert = "INSERT INTO secrets (secret) VALUES ($1)";
        log.sql.execute(insert, &[&"a password"]).await.unwrap();
        let error = log.sql.execute(insert, &[&"a password"]).await.unwrap_err();
        let detail = error.as_db_error().and_then(|said| said.detail()).unwrap_or_default();
        assert!(detail.contains("a password"), "{detail}");
        let message = farthing_log::connect::redacted(&error);
        assert!(message.contains("secrets_pkey") && message.ends_with("(SQLSTATE 23505)"), "{message}");
        assert!(!message.contains("a password"), "{message}");
        let nowhere = tokio_postgres::connect("postgres://127.0.0.1:1/nowhere", tokio_postgres::NoTls).await;
        let message = farthing_log::connect::redacted(&nowhere.err().unwrap());
        assert!(message.contains("refused"), "{message}");
    });
}
