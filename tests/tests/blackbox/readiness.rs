//! Readiness says whether a gateway can serve: it is not what it is busy with, and it ends before the gateway does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::client::Request;
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json;
use farthing_tests::run;
use farthing_tests::scrape::{get, scrape};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, eventually_ok};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Makes every count of a call against a rate limit wait.
const HOLD_COUNTS: &str = "BEGIN; LOCK TABLE ledger.rate_window IN ACCESS EXCLUSIVE MODE";

const READS: [(&str, &str); 1] = [("pool", "reads")];

/// Whether a task waits for a connection of the pool of reads, all of which are in use.
async fn is_full(operator: SocketAddr) -> bool {
    let now = scrape(operator).await;
    let waits = now.values("farthing_pool_waiting", &READS).iter().all(|waiting| *waiting > 0.0);
    let [in_use, most] = ["farthing_pool_connections_in_use", "farthing_pool_max_connections"]
        .map(|name| format!("{:?}", now.values(name, &READS)));
    waits && in_use == "[3.0]" && in_use == most
}

#[test]
fn a_gateway_whose_pool_of_reads_is_full_is_ready() {
    run(async {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        // With a limit, the calls of one merchant are counted at one connection.
        let flags = ["--read-connections=3", "--max-reads-per-merchant=0", "--allow-address=127.0.0.0/8"];
        let gateway = SideGateway::start(instance, &flags).await;
        // The calls of one key are counted at few connections.
        let keys = merchant.spend_keys(8).await;
        merchant.log.sql.batch_execute(HOLD_COUNTS).await.unwrap();
        let (mut callers, is_done) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for key in keys {
            let (to, is_done) = (gateway.address, Arc::clone(&is_done));
            let read = Request::new("GET", "/v1/models").bearer(&key);
            callers.spawn(async move {
                while !is_done.load(Ordering::SeqCst) {
                    // After 5 s, a read that waits is 503.
                    let _ = read.send(to).await;
                }
            });
        }
        // The pool was full all the while if it is so before and after.
        let mut answered = 0;
        while answered < 5 {
            eventually("the pool is full", async || is_full(gateway.operator).await.then_some(())).await;
            let ready = get(gateway.operator, "/readyz").await;
            if is_full(gateway.operator).await {
                assert_eq!(ready.status, 200, "{}", ready.text());
                answered += 1;
            }
        }
        is_done.store(true, Ordering::SeqCst);
        merchant.log.sql.batch_execute("ROLLBACK").await.unwrap();
        while callers.join_next().await.is_some() {}
        drop(gateway);
        instance.stop().await;
        instance.clear();
    });
}

#[test]
fn a_gateway_that_stops_is_unready_first_and_serves_until_it_is_drained() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let flags = ["--allow-address=127.0.0.0/8", "--drain-seconds=10", "--grace-seconds=1"];
        let mut gateway = SideGateway::start(merchant.instance, &flags).await;
        eventually_ok("it is ready", async || {
            let response = get(gateway.operator, "/readyz").await;
            if response.status == 200 { Ok(()) } else { Err(response.text()) }
        })
        .await;
        gateway.terminate();
        let unready = eventually("it says that it stops", async || {
            let response = get(gateway.operator, "/readyz").await;
            (response.status == 503).then(|| response.json())
        })
        .await;
        assert_eq!(unready["failing"], json!([{"check": "stopping", "reason": "the process stops"}]));
        // New connections, calls and reads are served as before.
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let call =
            forward("GET", &endpoint.url).bearer(&merchant.secret_key).send(gateway.address).await.unwrap();
        call.expect(200);
        merchant.charged(&call).await;
        let read = Request::new("GET", "/v1/requests").bearer(&merchant.secret_key);
        read.send(gateway.address).await.unwrap().expect(200);
        assert_eq!(get(gateway.operator, "/readyz").await.status, 503);
        eventually("the listener closes", async || TcpStream::connect(gateway.address).await.err()).await;
        assert!(gateway.ended().await.success(), "{}", gateway.logged());
        merchant.nothing_is_held().await;
    });
}
