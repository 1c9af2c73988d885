//! Ten live gateways and two projectors, with their default settings, on a Postgres server with its default settings; and a
//! gateway on smaller and larger ones.

use std::net::SocketAddr;

use farthing_tests::instance::Instance;
use farthing_tests::leader;
use farthing_tests::log::Log;
use farthing_tests::postgres_server::PostgresServer;
use farthing_tests::run;
use farthing_tests::scrape::{get, scrape};
use farthing_tests::scratch::operate;
use farthing_tests::shop::Shop;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::eventually_ok;
use futures_util::future::join_all;

const GATEWAYS: usize = 10;

/// The partitions of the log.
const PARTITIONS: usize = 8;

/// The connections of a projector that works, and of one that stands by.
const PROJECTORS: usize = 7 + 1;

/// The connections that a default server leaves to all but superusers.
const ALLOWED: usize = 97;

/// The sessions of processes, without that of this test.
const SESSIONS: &str = "\
SELECT count(*) FILTER (WHERE application_name = 'farthing_gateway'),
       count(*) FILTER (WHERE application_name = 'farthing_projector'), count(*)
FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// The number of calls that each gateway forwards at once, and how often.
const AT_ONCE: usize = 8;
const ROUNDS: usize = 3;

/// The sessions of gateways, of projectors and of all.
async fn sessions(log: &Log) -> [usize; 3] {
    let row = log.sql.query_one(SESSIONS, &[]).await.unwrap();
    [0, 1, 2].map(|column| usize::try_from(row.get::<_, i64>(column)).unwrap())
}

/// The number that the log of a process gives to `field`.
pub(crate) fn logged_number(logged: &str, event: &str, field: &str) -> Option<usize> {
    let line = logged.lines().find(|line| line.contains(event))?;
    let (_, after) = line.split_once(&format!(" {field}="))?;
    after.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn ten_gateways_and_two_projectors_fit_into_a_default_server() {
    run(async {
        let instance = Instance::shared().await;
        let Some(server) = PostgresServer::start(instance).await else { return };
        let url = server.database_url.as_str();
        operate(url, &["migrate", "--mode", "live"]).await;
        let projectors = [SideProjector::on(instance, url).await, SideProjector::on(instance, url).await];
        let log = Log::open(url).await;
        // One of the projectors has one connection, the other its own few.
        let [_, of_projectors, _] = sessions(&log).await;
        assert!(of_projectors <= PROJECTORS, "{of_projectors}");

        let flags =
            ["--allow-address=127.0.0.0/8", "--pages-url=https://pay.example", "--webhook-timeout-seconds=9"];
        let servers = ["--database-url", url];
        let mut gateways = Vec::new();
        for _ in 0..GATEWAYS {
            gateways.push(SideGateway::with(instance, &servers, &flags).await);
        }
        let mut at_most = PARTITIONS + PROJECTORS;
        for gateway in &gateways {
            let logged = gateway.logged();
            assert!(!logged.contains("connections_do_not_fit"), "{logged}");
            let all = logged_number(&logged, "postgres.connections_chosen", "all");
            at_most += all.unwrap_or_else(|| panic!("{logged}"));
            assert!(logged_number(&logged, "settings.chosen", "threads").is_some(), "{logged}");
        }
        assert!(at_most <= ALLOWED, "{at_most}");
        eventually_ok("each partition is led by another gateway", async || {
            let led = leader::led(&log.sql).await;
            if led.len() == PARTITIONS { Ok(()) } else { Err(format!("{led:?}")) }
        })
        .await;

        let addresses: Vec<SocketAddr> = gateways.iter().map(|gateway| gateway.address).collect();
        let shop = Shop::open(instance, url, addresses[0]).await;
        let mut most = 0;
        for _ in 0..ROUNDS {
            let calls = addresses.iter().flat_map(|gateway| std::iter::repeat_n(*gateway, AT_ONCE));
            let called = join_all(calls.map(|gateway| shop.call(gateway))).await;
            let called: Vec<_> = called.into_iter().map(Result::unwrap).collect();
            for response in &called {
                assert_eq!(response.status, 200, "{}", response.text());
            }
            let shown = called.iter().zip(addresses.iter().cycle());
            let shown: Vec<_> = shown.map(|(response, at)| (response.request_id(), *at)).collect();
            join_all(shown.iter().map(|(request_id, at)| shop.is_charged(*at, request_id))).await;
            let [of_gateways, of_projectors, all] = sessions(&log).await;
            assert!(of_gateways <= at_most - PROJECTORS && of_projectors <= PROJECTORS && all <= ALLOWED);
            most = most.max(all);
        }
        assert!(most > GATEWAYS * 3, "the gateways were connected: {most}");
        for gateway in &gateways {
            let logged = gateway.logged();
            assert!(!logged.contains("too many") && !logged.contains("SQLSTATE 53300"), "{logged}");
        }

        // The projector that stands by does the work once the other is gone.
        let [first, second] = projectors;
        drop(first);
        let request_id = shop.call(addresses[1]).await.unwrap().request_id();
        eventually_ok("the other projector works", async || {
            let [_, of_projectors, _] = sessions(&log).await;
            let shown = shop.get(addresses[2], &format!("/v1/requests/{request_id}")).await;
            let shown = shown.map_err(|error| error.to_string())?;
            if shown.status == 200 && of_projectors > 1 { Ok(()) } else { Err(shown.text()) }
        })
        .await;
        shop.is_charged(addresses[2], &request_id).await;
        drop(second);
    });
}

#[test]
fn a_gateway_takes_connections_by_what_the_server_allows() {
    run(async {
        let instance = Instance::shared().await;
        // Three are reserved for superusers. A gateway in live mode has four for what waits for nothing else.
        for (max_connections, all, reads, deliveries) in [(40, 8, 3, 1), (160, 13, 6, 3), (500, 16, 8, 4)] {
            let Some(server) = PostgresServer::start_with_connections(instance, max_connections).await else {
                return;
            };
            let url = server.database_url.as_str();
            operate(url, &["migrate", "--mode", "live", "--partitions", "1"]).await;
            let flags = ["--pages-url=https://pay.example", "--webhook-timeout-seconds=9"];
            let gateway = SideGateway::with(instance, &["--database-url", url], &flags).await;
            let logged = gateway.logged();
            for (field, chosen) in [
                ("allowed", usize::try_from(max_connections).unwrap() - 3),
                ("all", all),
                ("reads", reads),
                ("deliveries", deliveries),
            ] {
                let number = logged_number(&logged, "postgres.connections_chosen", field);
                assert_eq!(number, Some(chosen), "{field} of {max_connections}: {logged}");
            }
            let shown = scrape(gateway.operator).await;
            for (pool, size) in [("reads", reads), ("webhooks", deliveries)] {
                let most = shown.values("farthing_pool_max_connections", &[("pool", pool)]);
                assert_eq!(format!("{most:?}"), format!("[{size}.0]"), "{pool} of {max_connections}");
            }
            assert!(!logged.contains("connections_do_not_fit"), "{logged}");
        }
    });
}

#[test]
fn a_projector_that_stands_by_has_one_connection() {
    run(async {
        let instance = Instance::shared().await;
        let url = instance.create_database("projector_stands_by").await;
        operate(&url, &["migrate", "--mode", "test"]).await;
        let log = Log::open(&url).await;
        let _works = SideProjector::on(instance, &url).await;
        let locks = "\
            SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
            WHERE d.datname = current_database() AND locktype = 'advisory' AND granted";
        eventually_ok("it has all locks: its own, of the read models and of the outbox", async || {
            let held: i64 = log.sql.query_one(locks, &[]).await.unwrap().get(0);
            if held == 15 { Ok(()) } else { Err(format!("{held} locks")) }
        })
        .await;
        // The other one has a login of its own, by which its sessions are known.
        let login = instance.name_of("standby");
        let create = format!("CREATE ROLE {login} LOGIN SUPERUSER PASSWORD 'a-password'");
        log.sql.batch_execute(&create).await.unwrap();
        let (_, server) = url.split_once('@').unwrap();
        let standby = SideProjector::on(instance, &format!("postgres://{login}:a-password@{server}")).await;
        eventually_ok("the other one is ready", async || {
            let ready = get(standby.operator, "/readyz").await;
            if ready.status == 200 { Ok(()) } else { Err(ready.text()) }
        })
        .await;
        // Those of the check at its start end.
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
        eventually_ok("it has one connection", async || {
            let count: i64 = log.sql.query_one(sessions, &[&login]).await.unwrap().get(0);
            if count == 1 { Ok(()) } else { Err(format!("{count} sessions")) }
        })
        .await;
        drop(standby);
        log.sql.batch_execute(&format!("DROP ROLE {login}")).await.unwrap();
    });
}
