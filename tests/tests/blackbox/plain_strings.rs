//! A server with `standard_conforming_strings = off`, where a backslash in a statement's text is an escape.

use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::postgres_server::PostgresServer;
use farthing_tests::run;
use farthing_tests::scratch::operate;

/// The expressions of generated columns and defaults, as a session with the standard setting reads them.
const EXPRESSIONS: &str = "\
SELECT d.adrelid::regclass::text || '.' || a.attname || ': ' || pg_get_expr(d.adbin, d.adrelid)
FROM pg_attrdef AS d JOIN pg_attribute AS a ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum) ORDER BY 1";

async fn expressions(database_url: &str) -> Vec<String> {
    let log = Log::open(database_url).await;
    log.sql.batch_execute("SET standard_conforming_strings = on").await.unwrap();
    log.sql.query(EXPRESSIONS, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[test]
fn a_migration_stores_the_same_expressions_where_a_backslash_is_an_escape() {
    run(async {
        let instance = Instance::shared().await;
        let Some(server) = PostgresServer::start(instance).await else { return };
        let owner = Log::open(&server.database_url).await;
        owner
            .sql
            .batch_execute("ALTER ROLE CURRENT_USER SET standard_conforming_strings = off")
            .await
            .unwrap();
        operate(&server.database_url, &["migrate", "--mode", "test"]).await;
        let (found, usual) =
            (expressions(&server.database_url).await, expressions(&instance.ready().database_url).await);
        assert!(usual.iter().any(|expression| expression.contains(r"\d+")), "{usual:?}");
        assert_eq!(found, usual);
    });
}
