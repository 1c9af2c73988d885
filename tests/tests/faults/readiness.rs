//! A process that cannot reach Postgres is alive and not ready, and is ready again once it can.

use std::net::SocketAddr;

use farthing_tests::proxy::Proxy;
use farthing_tests::scrape::{get, scrape};
use farthing_tests::side_gateway::{SideGateway, StartedGateway};
use farthing_tests::side_projector::SideProjector;
use farthing_tests::wait::eventually_ok;
use serde_json::json;

use crate::{instance, put_away, run};

async fn is_ready(operator: SocketAddr) {
    eventually_ok("it is ready", async || {
        let response = get(operator, "/readyz").await;
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    })
    .await;
}

/// Waits until these checks fail.
async fn fails(operator: SocketAddr, checks: &[&str]) {
    eventually_ok("it is not ready", async || {
        let response = get(operator, "/readyz").await;
        let body = response.json();
        let failing = body["failing"].as_array().cloned().unwrap_or_default();
        let is_failing = |check: &&str| failing.iter().any(|failing| failing["check"] == **check);
        let is_said =
            response.status == 503 && body["ready"] == json!(false) && checks.iter().all(is_failing);
        if is_said { Ok(()) } else { Err(response.text()) }
    })
    .await;
    assert_eq!(get(operator, "/livez").await.status, 200);
    scrape(operator).await;
}

#[test]
fn without_postgres_a_process_is_not_ready_until_it_is_back() {
    run(async {
        let instance = instance().await;
        let ready = instance.ready();
        let (proxy, url) = Proxy::before(&ready.database_url).await;
        let flags = ["--allow-address=127.0.0.0/8", "--grace-seconds=1"];
        let mut gateway = SideGateway::start_on(instance, &url, &ready.nats_url, &flags).await;
        // The instance's own projector works, and this one stands by.
        let projector = SideProjector::on(instance, &url).await;
        is_ready(gateway.operator).await;
        is_ready(projector.operator).await;
        for _ in 0..2 {
            proxy.sever();
            fails(gateway.operator, &["postgres", "leases"]).await;
            fails(projector.operator, &["read_models"]).await;
            // Who leads is not known now.
            let now = scrape(gateway.operator).await;
            for name in ["farthing_partitions_led", "farthing_partitions_without_leader"] {
                assert!(now.values(name, &[]).is_empty(), "{name}");
            }
            proxy.restore();
            is_ready(gateway.operator).await;
            is_ready(projector.operator).await;
        }
        let scraped = scrape(gateway.operator).await;
        assert!(scraped.count("farthing_lease_round_failures_total", &[]) > 0);
        assert!(scrape(projector.operator).await.count("farthing_projection_restarts_total", &[]) > 0);
        gateway.terminate();
        assert!(gateway.ended().await.success());
        drop(projector);
        put_away(instance).await;
    });
}

#[test]
fn a_gateway_that_starts_while_postgres_is_away_serves_once_it_is_back() {
    run(async {
        let instance = instance().await;
        let ready = instance.ready();
        let (proxy, url) = Proxy::before(&ready.database_url).await;
        proxy.sever();
        let started = StartedGateway::on(instance, &url, &ready.nats_url, &[]);
        let operator = started.operator().await;
        fails(operator, &["started"]).await;
        eventually_ok("it says what it waits for", async || {
            let logged = started.logged();
            if logged.contains("event=\"gateway.database_unreachable\"") { Ok(()) } else { Err(logged) }
        })
        .await;
        proxy.restore();
        let mut gateway = started.serves().await;
        is_ready(gateway.operator).await;
        gateway.terminate();
        assert!(gateway.ended().await.success());
        put_away(instance).await;
    });
}
