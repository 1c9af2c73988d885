//! Servers that are away or do not answer: their checks fail or are skipped, and the others go on.

use farthing_tests::instance::Instance;
use farthing_tests::nats_server::NatsServer;
use farthing_tests::run;
use tokio::net::TcpListener;

use super::{doctor, migrated};

const NOBODY: &str = "postgres://nobody@127.0.0.1:1/none";

#[test]
fn a_server_that_is_away_fails_its_checks_and_those_of_the_other_go_on() {
    run(async {
        let instance = Instance::shared().await;
        let both = doctor(NOBODY, &["--nats-url=nats://127.0.0.1:1"]).await;
        both.expect("postgres.reached", "failed", "onnect");
        both.expect("nats.reached", "failed", "");
        both.expect("postgres.version", "skipped", "see postgres.reached");
        both.expect("feed.streams", "skipped", "see nats.reached");

        let nats = NatsServer::start(instance, "").await;
        let nats_url = format!("--nats-url=nats://127.0.0.1:{}", nats.port);
        let no_postgres = doctor(NOBODY, &[&nats_url]).await;
        no_postgres.expect("postgres.reached", "failed", "");
        no_postgres.expect("nats.version", "ok", "nats-server 2.");
        no_postgres.expect("nats.jetstream", "ok", "");

        let database_url = migrated(instance, "doctor_no_nats").await;
        let no_nats = doctor(&database_url, &["--nats-url=nats://127.0.0.1:1"]).await;
        no_nats.expect("nats.reached", "failed", "");
        no_nats.expect("database.migrations", "ok", "");
    });
}

#[test]
fn a_server_that_does_not_answer_holds_nothing_up_for_longer_than_its_time() {
    run(async {
        // The system accepts connections at their addresses, and nobody answers.
        let (postgres, nats) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let database_url = format!("postgres://nobody@127.0.0.1:{}/none", port(&postgres));
        let nats_url = format!("--nats-url=nats://127.0.0.1:{}", port(&nats));
        let report = doctor(&database_url, &["--timeout-seconds=4", &nats_url]).await;
        report.expect("postgres.reached", "failed", "no answer within 4 s");
        report.expect("nats.reached", "failed", "");
        report.expect("nats.tls", "failed", "no answer within 4 s");
    });
}
