//! Overload: what is beyond a gateway's limits is refused at once, and what was begun is finished. Each test has a
//! gateway of its own with small limits.

use std::time::Duration;

use farthing_tests::client::{Connection, Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, json};
use farthing_tests::run;
use farthing_tests::scrape::{Scrape, scrape};
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, eventually_ok};
use futures_util::future::{Either, select};
use serde_json::json;
use tokio_postgres::Client;

const LOCAL: &str = "--allow-address=127.0.0.0/8";

/// A refusal or an answer that needs no ledger comes within this time, on a busy machine too.
const AT_ONCE: Duration = Duration::from_secs(4);

/// Locks the head of the partition of a merchant: nothing is appended to it until the transaction ends.
pub(crate) async fn lock_head(sql: &Client, merchant: &Merchant) {
    let partition = merchant.log.partition_of(&merchant.id).await;
    let lock = format!("BEGIN; SELECT position FROM ledger.heads WHERE partition = {partition} FOR UPDATE");
    sql.batch_execute(&lock).await.unwrap();
}

/// Starts a call and returns once its provider has it.
async fn in_flight(merchant: &Merchant, gateway: &SideGateway, endpoint: &Endpoint) -> Connection {
    let mut connection = Connection::open(gateway.address).await.unwrap();
    connection.send(&forward("GET", &endpoint.url).bearer(&merchant.secret_key)).await.unwrap();
    eventually("the provider is called", async || (!endpoint.calls().is_empty()).then_some(())).await;
    connection
}

/// The gateway's metrics of the queue of this partition once there are so many commands in it, and whether the oldest has
/// waited for as long as can be seen.
async fn queued(gateway: &SideGateway, partition: &str, commands: f64, has_waited: bool) -> Scrape {
    let of_partition = [("partition", partition)];
    eventually_ok("the queue is as long", async || {
        let shown = scrape(gateway.operator).await;
        let [count, oldest] = ["farthing_queue_commands", "farthing_queue_oldest_seconds"]
            .map(|name| shown.values(name, &of_partition));
        let is_so = format!("{count:?}") == format!("[{commands:?}]")
            && oldest.len() == 1
            && (oldest[0] > 0.0) == has_waited;
        if is_so { Ok(shown) } else { Err(format!("{count:?} {oldest:?}")) }
    })
    .await
}

/// A connection of its own, so that its transaction is no other test's.
async fn sql(merchant: &Merchant) -> Client {
    farthing_tests::log::Log::open(&merchant.instance.ready().database_url).await.sql
}

fn is_overload(response: &Response) {
    response.refused(503, "ledger_unavailable");
    assert_eq!(response.head.header("retry-after"), Some("1"));
    assert!(response.text().contains("overloaded"), "{}", response.text());
    response.request_id();
}

#[test]
fn a_call_beyond_the_limit_is_refused_at_once_and_the_one_in_flight_is_finished() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gateway = SideGateway::start(merchant.instance, &[LOCAL, "--max-calls=1"]).await;
        let gate = Gate::default();
        let endpoint = merchant.instance.provider.endpoint_behind(&gate);
        let mut first = in_flight(&merchant, &gateway, &endpoint).await;
        let wallet = Request::new("GET", "/v1/wallet").bearer(&merchant.secret_key);
        for request in [forward("GET", &endpoint.url).bearer(&merchant.secret_key), wallet.clone()] {
            is_overload(&request.send(gateway.address).await.unwrap());
        }
        assert_eq!(endpoint.calls().len(), 1, "the refused call was sent");
        let shown = scrape(gateway.operator).await;
        let unavailable = |labels: &[(&str, &str)]| shown.count("farthing_unavailable_total", labels);
        assert_eq!((unavailable(&[]), unavailable(&[("reason", "calls in flight")])), (2, 2));
        gate.open();
        first.response("GET").await.unwrap().expect(200);
        eventually("the next call is taken", async || {
            let response = wallet.send(gateway.address).await.unwrap();
            (response.status == 200).then_some(())
        })
        .await;
    });
}

#[test]
fn a_connection_beyond_the_limit_waits_until_another_one_ends() {
    run(async {
        let merchant = Merchant::new().await;
        let gateway = SideGateway::start(merchant.instance, &["--max-connections=1"]).await;
        let request = Request::new("GET", "/v1/openapi.json");
        let mut first = Connection::open(gateway.address).await.unwrap();
        first.send(&request).await.unwrap();
        first.response("GET").await.unwrap().expect(200);
        let to = gateway.address;
        let second = tokio::spawn({
            let request = request.clone();
            async move { request.send(to).await.unwrap() }
        });
        for _ in 0..20 {
            first.send(&request).await.unwrap();
            first.response("GET").await.unwrap().expect(200);
        }
        assert!(!second.is_finished(), "a second connection was served");
        drop(first);
        second.await.unwrap().expect(200);
    });
}

#[test]
fn a_command_beyond_the_queue_is_refused_at_once_and_a_settlement_is_not() {
    run(async {
        // A separate instance: the gateway leads partitions, and refuses the commands of other tests.
        let instance = Instance::of_test(1).await;
        let gateway = SideGateway::start(instance, &[LOCAL, "--max-queued-commands=1"]).await;
        let merchant = gateway.merchant_of_its_own(instance, "1").await;
        let gate = Gate::default();
        let endpoint = merchant.instance.provider.endpoint_behind(&gate);
        let mut call = in_flight(&merchant, &gateway, &endpoint).await;
        let sql = sql(&merchant).await;
        lock_head(&sql, &merchant).await;
        let create = |reference: &str| {
            let body = json!({"reference_id": reference});
            let request = Request::new("POST", "/v1/customers").bearer(&merchant.secret_key).json(&body);
            let to = gateway.address;
            Box::pin(async move { request.send(to).await.unwrap() })
        };
        let answered = tokio::time::timeout(AT_ONCE, select(create("a"), create("b"))).await;
        let (Either::Left((refused, waits)) | Either::Right((refused, waits))) =
            answered.expect("the refusal comes at once");
        is_overload(&refused);
        let partition = merchant.partition().await.to_string();
        let shown = queued(&gateway, &partition, 1.0, true).await;
        for (name, labels, count) in [
            ("farthing_commands_shed_total", &[("reason", "full")][..], 1),
            ("farthing_commands_shed_total", &[], 1),
            ("farthing_unavailable_total", &[("reason", "the appender's queue")], 1),
            ("farthing_unavailable_total", &[], 1),
        ] {
            assert_eq!(shown.count(name, labels), count, "{name} {labels:?}");
        }
        // The queue is full, and the call's settlement is taken.
        gate.open();
        let (answer, created) = tokio::join!(call.response("GET"), async {
            let sent = async || endpoint.calls()[0].finished.load(std::sync::atomic::Ordering::SeqCst);
            eventually("the provider has answered", async || sent().await.then_some(())).await;
            sql.batch_execute("COMMIT").await.unwrap();
            waits.await
        });
        answer.unwrap().expect(200);
        created.expect(201);
        assert!(!gateway.logged().contains("forward.settlement_retried"), "{}", gateway.logged());
        queued(&gateway, &partition, 0.0, false).await;
        drop(gateway);
        instance.stop().await;
        instance.clear();
    });
}

#[test]
fn an_unknown_key_does_not_reach_the_writer_and_a_new_one_works_at_once() {
    run(async {
        let merchant = Merchant::funded("1").await;
        let gateway = SideGateway::start(merchant.instance, &[LOCAL]).await;
        let endpoint = merchant.instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 1}})));
        let call = |key: &str| forward("GET", &endpoint.url).bearer(key);
        let sql = sql(&merchant).await;
        lock_head(&sql, &merchant).await;
        for (key, code) in [("spk_nobodys", "spend_key_invalid"), ("aks_test_nobodys", "secret_key_invalid")]
        {
            let request = call(key);
            let answered = tokio::time::timeout(AT_ONCE, request.send(gateway.address)).await;
            answered.expect("the writer is not asked").unwrap().refused(401, code);
        }
        sql.batch_execute("COMMIT").await.unwrap();
        assert!(endpoint.calls().is_empty());
        call(&merchant.secret_key).send(gateway.address).await.unwrap().expect(200);
        let made = merchant.post("/v1/spend_keys", &json!({"name": "new"})).await.expect(201);
        call(made["key"].as_str().unwrap()).send(gateway.address).await.unwrap().expect(200);
    });
}
