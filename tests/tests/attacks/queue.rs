//! Commands of one merchant while Postgres is slow: they leave places in the queue of their partition to others.

use farthing_tests::client::{Request, Response};
use farthing_tests::instance::Instance;
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::eventually;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

/// The most commands in the queue. A merchant that is alone has half of them.
const QUEUED: usize = 16;

/// More short commands than a merchant has places for.
const SHORT: usize = QUEUED + 8;

/// More commands with 51 KB of text than fit in half of 2 MiB.
const LONG: usize = 24;

#[test]
fn commands_of_one_merchant_leave_places_in_the_queue_to_others() {
    run(async {
        // An instance of its own: the gateway leads partitions, and refuses the commands of other tests.
        let instance = Instance::of_test(1).await;
        let flags = [
            "--allow-address=127.0.0.0/8",
            "--max-queued-mib=2",
            &format!("--max-queued-commands={QUEUED}"),
            "--queue-timeout-seconds=60",
        ];
        let gateway = SideGateway::start(instance, &flags).await;
        let attacker = gateway.merchant_of_its_own(instance, "1").await;
        let partition = attacker.partition().await;
        let victim = attacker.neighbour().await;
        let sql = Log::open(&instance.ready().database_url).await.sql;
        // The gateway knows their keys from now on.
        for merchant in [&attacker, &victim] {
            create(merchant, &gateway, &json!({})).await.expect(201);
        }
        for (metadata, count) in [(json!({}), SHORT), (long_metadata(), LONG)] {
            let lock =
                format!("BEGIN; SELECT position FROM ledger.heads WHERE partition = {partition} FOR UPDATE");
            sql.batch_execute(&lock).await.unwrap();
            let mut attacks = JoinSet::new();
            for _ in 0..count {
                attacks.spawn(create(&attacker, &gateway, &metadata));
            }
            let mut refused = 0;
            eventually("each of the attacker's commands waits or is refused", async || {
                while let Some(response) = attacks.try_join_next() {
                    response.unwrap().refused(503, "ledger_unavailable");
                    refused += 1;
                }
                (refused > 0 && queued(&gateway, partition).await >= attacks.len()).then_some(())
            })
            .await;
            let waiting = attacks.len();
            let victims = tokio::spawn(create(&victim, &gateway, &metadata));
            eventually("the victim's command is answered or waits", async || {
                (victims.is_finished() || queued(&gateway, partition).await > waiting).then_some(())
            })
            .await;
            sql.batch_execute("COMMIT").await.unwrap();
            let victims = victims.await.unwrap();
            assert_eq!(victims.status, 201, "{waiting} of the attacker's waited: {}", victims.text());
            for response in attacks.join_all().await {
                response.expect(201);
            }
        }
        drop(gateway);
        instance.stop().await;
        instance.clear();
    });
}

/// 100 pairs of the greatest length.
fn long_metadata() -> Value {
    let pair = |number| (format!("{number:0255}"), Value::from("v".repeat(255)));
    Value::from((0..100).map(pair).collect::<Map<_, _>>())
}

/// Creates a customer of `merchant`.
fn create(
    merchant: &Merchant,
    gateway: &SideGateway,
    metadata: &Value,
) -> impl Future<Output = Response> + Send + use<> {
    let request = Request::new("POST", "/v1/customers").bearer(&merchant.secret_key);
    let (request, to) = (request.json(&json!({"metadata": metadata})), gateway.address);
    async move { request.send(to).await.unwrap() }
}

/// The commands in the queue of this partition.
async fn queued(gateway: &SideGateway, partition: i16) -> usize {
    let shown = scrape(gateway.operator).await;
    let commands = shown.values("farthing_queue_commands", &[("partition", &partition.to_string())]);
    commands.iter().map(|commands| format!("{commands:.0}").parse::<usize>().unwrap()).sum()
}
