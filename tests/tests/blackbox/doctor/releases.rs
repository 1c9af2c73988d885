//! Postgres of other releases than the one of the tests: one that is too old, and the newest.

use std::process::Stdio;

use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Log;
use farthing_tests::postgres_server::PostgresServer;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use tokio::process::Command;
use tokio_postgres::Client;

use super::doctor;

/// What a migration would make: roles, schemas and what is in them.
const MADE: &str = "\
SELECT 'role ' || rolname FROM pg_roles
UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'
UNION ALL SELECT relname || ' in ' || relnamespace::regnamespace FROM pg_class
    WHERE relnamespace::regnamespace::text NOT LIKE 'pg\\_%'
UNION ALL SELECT proname || ' in ' || pronamespace::regnamespace FROM pg_proc
    WHERE pronamespace::regnamespace::text NOT LIKE 'pg\\_%'
ORDER BY 1";

async fn made(sql: &Client) -> Vec<String> {
    sql.query(MADE, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_postgres_that_is_too_old_fails_and_is_not_migrated() {
    run(async {
        let instance = Instance::shared().await;
        let Some(server) = PostgresServer::start_release(instance, "14").await else { return };
        let log = Log::open(&server.database_url).await;
        let before = made(&log.sql).await;
        assert!(before.contains(&"schema public".to_owned()), "{before:?}");

        let report = doctor(&server.database_url, &[]).await;
        report.expect("postgres.reached", "ok", "");
        report.expect("postgres.version", "failed", "Postgres 14.");
        report.expect("postgres.durability", "ok", "");
        report.expect("database.migrations", "failed", "there is no log in this database");

        let mut migrate = Command::new(program());
        migrate.args(["migrate", "--mode", "test", "--database-url", &server.database_url]);
        let ended = migrate.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            said.contains("the server is Postgres 14.") && said.contains("needs Postgres 15 or newer"),
            "{said}"
        );
        assert_eq!(made(&log.sql).await, before);
    });
}

#[test]
fn the_newest_postgres_is_migrated_and_is_well() {
    run(async {
        let instance = Instance::shared().await;
        let Some(server) = PostgresServer::start_release(instance, "18").await else { return };
        operate(&server.database_url, &["migrate", "--mode", "test"]).await;
        let report = doctor(&server.database_url, &[]).await;
        report.expect("postgres.version", "ok", "Postgres 18.");
        report.expect("database.migrations", "ok", "");
        report.expect("database.append_only", "ok", "");
        report.expect("rights.roles", "ok", "");
        // The disk is the machine's: it may be nearly full.
        let of_server = |verdict| {
            let mut checks = report.with(verdict);
            checks.retain(|check| *check != "postgres.disk");
            checks
        };
        // Nothing is wrong but that nothing runs.
        assert_eq!(of_server("failed"), ["processes.gateways", "processes.leaders", "processes.projector"]);
        // The programs from npm are built without lz4.
        assert_eq!(of_server("warning"), ["postgres.compression"]);
    });
}
