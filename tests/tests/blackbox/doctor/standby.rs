//! A standby of Postgres, which takes no writes.

use farthing_tests::instance::Instance;
use farthing_tests::postgres_server::PostgresServer;
use farthing_tests::run;
use farthing_tests::scratch::operate;

use super::doctor;

#[test]
fn a_standby_fails_and_the_primary_beside_it_in_the_url_is_found() {
    run(async {
        let instance = Instance::shared().await;
        let Some(primary) = PostgresServer::start(instance).await else { return };
        operate(&primary.database_url, &["migrate", "--mode", "test"]).await;
        let Some(standby) = primary.standby(instance).await else { return };

        let report = doctor(&standby.database_url, &[]).await;
        report.expect("postgres.reached", "ok", "");
        report.expect("postgres.primary", "failed", "the server is a standby");
        // What it reads is as it is at the primary.
        report.expect("database.migrations", "ok", "");
        doctor(&primary.database_url, &[]).await.expect("postgres.primary", "ok", "takes writes");

        // As the advice says.
        let (before, port) = before_and_port(&standby.database_url);
        let (_, port_of_primary) = before_and_port(&primary.database_url);
        let both = format!("{before}:{port},127.0.0.1:{port_of_primary}/farthing");
        doctor(&both, &[]).await.expect("postgres.primary", "failed", "the server is a standby");
        let both = format!("{both}?target_session_attrs=read-write");
        doctor(&both, &[]).await.expect("postgres.primary", "ok", "takes writes");
    });
}

/// What is before the port in a URL, and the port.
fn before_and_port(url: &str) -> (&str, &str) {
    let (server, _) = url.rsplit_once('/').unwrap();
    server.rsplit_once(':').unwrap()
}
