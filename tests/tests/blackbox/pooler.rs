//! `PgBouncer` between the processes and Postgres: session mode works, the others are refused.

use std::process::Stdio;

use farthing_log::connect::{Role, check_sessions, connect, redacted};
use farthing_tests::instance::{Instance, program};
use farthing_tests::log::Log;
use farthing_tests::pgbouncer::PgBouncer;
use farthing_tests::run;
use farthing_tests::scratch::operate;
use farthing_tests::shop::Shop;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::eventually_ok;
use tokio_postgres::Client;

const SESSION: &str = "pool_mode = session";

/// What a session is set to, and which one it is.
const SETTINGS: &str = "\
SELECT concat_ws(' ', current_user, current_setting('jit'), current_setting('search_path'),
                 current_setting('statement_timeout')), pg_backend_pid()";

async fn settings(client: &Client) -> (String, i32) {
    let row = client.query_one(SETTINGS, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[test]
fn behind_a_pooler_in_session_mode_calls_are_charged_and_shown_also_after_it_was_killed() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = instance.create_database("pooler_session").await;
        let Some(mut pooler) = PgBouncer::start(instance, &database_url, SESSION).await else { return };
        let url = pooler.database_url().to_owned();
        operate(&url, &["migrate", "--mode", "test"]).await;
        let flags = ["--allow-address=127.0.0.0/8"];
        let gateways = [
            SideGateway::with(instance, &["--database-url", &url], &flags).await,
            SideGateway::with(instance, &["--database-url", &url], &flags).await,
        ];
        let _projectors = [SideProjector::on(instance, &url).await, SideProjector::on(instance, &url).await];
        let shop = Shop::open(instance, &url, gateways[0].address).await;
        let mut called = Vec::new();
        for round in 0..3 {
            for gateway in &gateways {
                let request_id = eventually_ok("a call passes", async || {
                    let call = shop.call(gateway.address).await.map_err(|error| error.to_string())?;
                    if call.status == 200 { Ok(call.request_id()) } else { Err(call.text()) }
                })
                .await;
                called.push(request_id);
            }
            for (gateway, request_id) in gateways.iter().zip(called.iter().rev()) {
                shop.is_charged(gateway.address, request_id).await;
            }
            if round < 2 {
                pooler.restart().await;
            }
        }
        let log = Log::open(&database_url).await;
        for request_id in &called {
            assert!(log.event(&format!("{request_id}/metered")).await.is_some(), "{request_id}");
        }
        let verified = operate(&url, &["log", "verify"]).await;
        assert_eq!(verified["ok"], true, "{verified}");
        let rebuilt = operate(&url, &["projections", "verify", "requests"]).await;
        assert_eq!(rebuilt["differences"], 0, "{rebuilt}");
    });
}

#[test]
fn a_session_has_the_rights_of_its_process_and_leaves_nothing_to_the_next() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = instance.ready().database_url;
        let one = format!("{SESSION}\ndefault_pool_size = 1");
        let Some(pooler) = PgBouncer::start(instance, &database_url, &one).await else { return };
        let url = pooler.database_url();
        let gateway = connect(url, Role::Gateway).await.unwrap();
        let (set, session) = settings(&gateway).await;
        assert_eq!(set, "farthing_gateway off pg_catalog, pg_temp 0");
        let changes = "SET statement_timeout = '7s'; SET jit = on; SELECT pg_advisory_lock(7)";
        gateway.batch_execute(changes).await.unwrap();
        drop(gateway);
        let owner = connect(url, Role::Owner).await.unwrap();
        let login = connect(&database_url, Role::Owner).await.unwrap();
        let login: String = login.query_one("SELECT session_user::text", &[]).await.unwrap().get(0);
        assert_eq!(settings(&owner).await, (format!("{login} off pg_catalog, pg_temp 0"), session));
        let held = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'";
        assert_eq!(owner.query_one(held, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

#[test]
fn a_pooler_that_does_not_reset_its_sessions_is_refused() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = instance.ready().database_url;
        let unreset = format!("{SESSION}\ndefault_pool_size = 1\nserver_reset_query =");
        let Some(pooler) = PgBouncer::start(instance, &database_url, &unreset).await else { return };
        drop(connect(pooler.database_url(), Role::Gateway).await.unwrap());
        let refused = connect(pooler.database_url(), Role::Owner).await.unwrap_err();
        assert!(redacted(&refused).contains("server_reset_query = DISCARD ALL"), "{refused}");
    });
}

#[test]
fn poolers_that_share_sessions_are_refused_at_the_start_of_every_process() {
    run(async {
        let instance = Instance::shared().await;
        let database_url = instance.create_database("pooler_transaction").await;
        operate(&database_url, &["migrate", "--mode", "test"]).await;
        for settings in [
            "pool_mode = transaction",
            "pool_mode = transaction\nserver_round_robin = 1",
            "pool_mode = statement",
        ] {
            let Some(pooler) = PgBouncer::start(instance, &database_url, settings).await else { return };
            let url = pooler.database_url();
            for _ in 0..3 {
                let refused = check_sessions(url).await.unwrap_err().to_string();
                assert!(refused.contains("session mode"), "{settings}: {refused}");
            }
            for (code, command) in [
                (1, &["gateway", "--listen=127.0.0.1:0", "--no-webhooks"][..]),
                (1, &["projector"]),
                (1, &["migrate", "--mode=test"]),
                (1, &["merchant", "list"]),
                (2, &["log", "verify"]),
            ] {
                let mut process = tokio::process::Command::new(program());
                process.args(command).args(["--database-url", url]).stdin(Stdio::null()).kill_on_drop(true);
                let ended = process.output().await.unwrap();
                let said = String::from_utf8_lossy(&ended.stderr);
                assert_eq!(ended.status.code(), Some(code), "{command:?}: {said}");
                assert!(said.contains("Farthing needs session mode"), "{command:?}: {said}");
            }
        }
        let log = Log::open(&database_url).await;
        assert!(log.heads().await.iter().all(|head| head.position == 0), "nothing was changed");
    });
}
