//! The number of connections to Postgres: a process that does not fit says so at its start.

use std::process::Stdio;

use farthing_tests::instance::{Instance, program};
use farthing_tests::run;
use farthing_tests::side_gateway::SideGateway;

/// What Postgres allows, without the reserved connections.
const ALLOWED: &str = "\
SELECT current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
    - COALESCE(current_setting('reserved_connections', true)::bigint, 0)";

/// The connections of a gateway in test mode that are not for reads or deliveries: fixed ones, and the test processor's.
const OTHERS: i64 = 4 + 4;

async fn allowed(instance: &Instance) -> i64 {
    instance.log().await.sql.query_one(ALLOWED, &[]).await.unwrap().get(0)
}

#[test]
fn a_gateway_whose_connections_do_not_fit_beside_those_in_use_warns_with_numbers() {
    run(async {
        let instance = Instance::shared().await;
        let allowed = allowed(instance).await;
        // It would fit if nothing else was connected and it led no partition. It delivers no webhooks.
        let reads = format!("--read-connections={}", allowed - OTHERS);
        let gateway = SideGateway::start(instance, &[&reads]).await;
        let logged = gateway.logged();
        assert!(logged.contains("postgres.connections_do_not_fit"), "{logged}");
        assert!(logged.contains(&format!("needed={}", allowed + 8)), "{logged}");
    });
}

#[test]
fn a_gateway_whose_connections_can_never_fit_does_not_start() {
    run(async {
        let instance = Instance::shared().await;
        let allowed = allowed(instance).await;
        let reads = format!("--read-connections={}", allowed - OTHERS + 1);
        let mut gateway = tokio::process::Command::new(program());
        gateway.args(["gateway", "--listen=127.0.0.1:0", "--no-webhooks", &reads]);
        gateway.args(["--database-url", &instance.ready().database_url]).stdin(Stdio::null());
        let ended = gateway.kill_on_drop(true).output().await.unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        let numbers = format!("needs up to {} connections, and Postgres allows {allowed}", allowed + 1);
        assert!(said.contains(&numbers) && said.contains("raise `max_connections`"), "{said}");
    });
}
