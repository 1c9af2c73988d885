//! The log is gap-free, chained and append-only for every database role.

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

#[test]
fn positions_have_no_gap_and_every_hash_chains_to_the_previous_one() {
    run(async {
        let merchant = merchant_with_traffic().await;
        // One snapshot of the head and its events.
        merchant.log.sql.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        let head = merchant.log.sql.query_one("SELECT position, hash FROM ledger.head", &[]).await.unwrap();
        let events = merchant.log.after(0).await;
        merchant.log.sql.batch_execute("COMMIT").await.unwrap();
        check_chain(&events, (head.get(0), head.get(1)));
        let books = Books::of(&events);
        assert!(books.requests.len() >= 10);
        // A merchant's test clock may be ahead of the machine's.
        let ahead: std::collections::HashSet<_> = events
            .iter()
            .filter(|event| event.kind == "clock.advanced")
            .map(|event| &event.merchant_id)
            .collect();
        let on_time = |event: &&Logged| !ahead.contains(&event.merchant_id);
        assert!(events.iter().filter(on_time).all(|event| event.recorded_at >= event.occurred_at));
        assert!(events.iter().all(|event| event.schema_version == 1));
        let writers: std::collections::HashSet<_> =
            events.iter().map(|event| event.metadata.as_str()).collect();
        assert!(writers.len() >= 2, "the metadata names the writer: {writers:?}");
    });
}

#[test]
fn the_states_are_a_fold_of_the_log() {
    run(async {
        let merchant = merchant_with_traffic().await;
        merchant.log.sql.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        let books = Books::of(&merchant.log.after(0).await);
        let wallets = merchant.log.states("wallet").await;
        let open = merchant.log.states("request").await;
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
                "UPDATE ledger.events SET body = '{}' WHERE position = 1",
                "UPDATE ledger.events SET position = -position",
                "UPDATE ledger.events SET key = 'x' WHERE false",
                "DELETE FROM ledger.events WHERE position = 1",
                "DELETE FROM ledger.events WHERE false",
                "TRUNCATE ledger.events",
                "TRUNCATE ledger.events CASCADE",
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
            ("farthing_gateway", "UPDATE ledger.events SET body = '{}'"),
            ("farthing_gateway", "DELETE FROM ledger.events"),
            ("farthing_gateway", "TRUNCATE ledger.events"),
            ("farthing_gateway", "ALTER TABLE ledger.events DISABLE TRIGGER ALL"),
            ("farthing_gateway", "DROP TABLE ledger.events"),
            ("farthing_gateway", "UPDATE ledger.instance SET mode = 'live'"),
            ("farthing_projector", "INSERT INTO ledger.events (position) VALUES (0)"),
            ("farthing_projector", "UPDATE ledger.events SET body = '{}'"),
            ("farthing_projector", "UPDATE ledger.head SET position = 0"),
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

#[test]
fn the_columns_keep_the_exact_bytes() {
    run(async {
        let merchant = Merchant::new().await;
        let types = merchant
            .log
            .sql
            .query(
                "SELECT column_name::text, data_type::text, is_nullable::text FROM information_schema.columns
                 WHERE table_schema = 'ledger' AND table_name = 'events' ORDER BY ordinal_position",
                &[],
            )
            .await
            .unwrap();
        for row in &types {
            assert_eq!(row.get::<_, &str>(2), "NO", "{}", row.get::<_, &str>(0));
        }
        let of =
            |name: &str| types.iter().find(|row| row.get::<_, &str>(0) == name).unwrap().get::<_, String>(1);
        assert_eq!((of("body").as_str(), of("metadata").as_str()), ("json", "json"));
        let always: i64 = merchant
            .log
            .sql
            .query_one(
                "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'ledger.events'::regclass AND tgenabled = 'A'",
                &[],
            )
            .await
            .unwrap()
            .get(0);
        assert!(always >= 2);
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
