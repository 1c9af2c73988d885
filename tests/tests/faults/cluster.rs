//! An instance on a Citus cluster and a cluster of NATS servers, whose nodes are killed under load. Where Citus is not
//! installed, the test says so and does nothing; `./test` says it again at its end.

use std::time::Duration;

use farthing_tests::cluster;
use farthing_tests::feed;
use farthing_tests::instance::{CLUSTER, Instance};
use farthing_tests::log::Log;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::{is_running, kill};
use farthing_tests::provider::json as json_answer;
use farthing_tests::ready::Pids;
use farthing_tests::wait::within;
use serde_json::json;

use crate::load::Load;
use crate::{HEAL, aftermath, put_away, run};

/// The place, among the workers, of the node that holds a partition; none if it is the coordinator.
const WORKER_OF: &str = "\
SELECT (SELECT count(*) FROM pg_dist_node AS before WHERE before.groupid <> 0 AND before.nodeid < n.nodeid)
FROM pg_dist_placement AS p JOIN pg_dist_node AS n ON n.groupid = p.groupid AND n.groupid <> 0
WHERE p.shardid = get_shard_id_for_distribution_column('ledger.heads', $1::smallint)";

/// The tables with rows of partitions that are not on the nodes of their partitions.
const ELSEWHERE: &str = "\
SELECT c.oid::regclass::text FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'citus')
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'partition'
LEFT JOIN pg_dist_partition AS d ON d.logicalrelid = c.oid
WHERE c.relkind = 'r' AND d.colocationid IS DISTINCT FROM (
    SELECT h.colocationid FROM pg_dist_partition AS h WHERE h.logicalrelid = 'ledger.heads'::regclass)
ORDER BY 1";

/// Changes of the log.
const CHANGES: [&str; 3] =
    ["UPDATE ledger.batches SET count = 1", "DELETE FROM ledger.batches", "TRUNCATE ledger.batches"];

/// Kills a process under load, waits until it is back and calls are served, and checks everything.
async fn survives(instance: &'static Instance, victim: impl Fn(&Pids) -> u32, load: Load) {
    load.calls(100).await;
    let pid = victim(&instance.ready().pids);
    kill(pid);
    within(HEAL, "the killed process is back", async || {
        let now = instance.try_ready().map(|ready| victim(&ready.pids))?;
        (now != pid && is_running(now)).then_some(())
    })
    .await;
    load.calls(200).await;
    let load = load.stop().await;
    aftermath::check(instance, &load).await;
}

/// The place of the worker that holds `partition`.
async fn worker_of(log: &Log, partition: i16) -> usize {
    let worker: i64 = log.sql.query_one(WORKER_OF, &[&partition]).await.unwrap().get(0);
    usize::try_from(worker).unwrap()
}

/// A new merchant whose worker is `wanted`, and that worker's place.
async fn merchant_on(
    instance: &'static Instance,
    log: &Log,
    wanted: impl Fn(usize) -> bool,
) -> (Merchant, usize) {
    loop {
        let merchant = Merchant::of(instance).await;
        let worker = worker_of(log, merchant.partition().await).await;
        if wanted(worker) {
            return (merchant, worker);
        }
    }
}

/// The longest wait for an answer, before the next call. A call that was opened when its worker was lost is answered only
/// once it is settled.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The status of a call of `merchant`; `None` if there was no answer in time.
async fn status_of_call(merchant: &Merchant, url: &str) -> Option<u16> {
    let call = forward("GET", url).bearer(&merchant.secret_key);
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, call.send(merchant.gateway())).await;
    Some(answer.ok()?.ok()?.status)
}

#[test]
fn while_a_worker_stays_away_the_other_partitions_are_served_and_make_keys() {
    if !cluster::is_installed() {
        return;
    }
    run(async {
        let instance = Instance::of_test_with(2, &CLUSTER).await;
        let log = instance.log().await;
        let load = Load::start(instance).await;
        let node = worker_of(&log, load.merchant().partition().await).await;
        let (served, _) = merchant_on(instance, &log, |worker| worker == node).await;
        let (lost, away) = merchant_on(instance, &log, |worker| worker != node).await;
        lost.credit_own("10").await;
        load.calls(50).await;

        // Without its folder it does not start again.
        let folder = instance.data.join(format!("postgres-worker-{away}"));
        let hidden = folder.with_extension("away");
        std::fs::rename(&folder, &hidden).unwrap();
        kill(instance.ready().pids.workers[away]);
        let url = instance.provider.endpoint(|_| json_answer(200, &json!({}))).url;
        within(HEAL, "calls of its partitions are refused", async || {
            (status_of_call(&lost, &url).await? == 503).then_some(())
        })
        .await;

        load.calls(100).await;
        for number in 0..20 {
            let body = json!({"name": format!("number {number}")});
            let made = served.post("/v1/spend_keys", &body).await.expect(201);
            let key = made["key"].as_str().unwrap();
            // The other gateway has not seen the key yet.
            let call = forward("GET", &url).bearer(key);
            call.send(instance.gateway(1)).await.unwrap().expect(200);
        }
        load.calls(100).await;

        std::fs::rename(&hidden, &folder).unwrap();
        within(HEAL, "its partitions are served again", async || {
            (status_of_call(&lost, &url).await? == 200).then_some(())
        })
        .await;
        let load = load.stop().await;
        aftermath::check(instance, &load).await;
        put_away(instance).await;
    });
}

#[test]
fn killing_a_worker_a_nats_server_and_a_gateway_of_a_cluster_loses_and_doubles_no_charge() {
    if !cluster::is_installed() {
        return;
    }
    run(async {
        let instance = Instance::of_test_with(2, &CLUSTER).await;
        let log = instance.log().await;
        let elsewhere = log.sql.query(ELSEWHERE, &[]).await.unwrap();
        let elsewhere: Vec<String> = elsewhere.iter().map(|row| row.get(0)).collect();
        assert_eq!(elsewhere, ["ledger.directory", "ledger.leases"]);
        // Statements of the coordinator do not reach its own triggers, but those of the shards.
        for change in CHANGES {
            let refused = log.sql.batch_execute(change).await.unwrap_err();
            assert!(
                refused.as_db_error().is_some_and(|error| error.message().contains("append-only")),
                "{refused}"
            );
        }

        let load = Load::start(instance).await;
        let partition = load.merchant().partition().await;
        let worker = worker_of(&log, partition).await;
        survives(instance, |pids| pids.workers[worker], load).await;

        let mut stream = feed::stream_of(instance, partition).await.unwrap();
        let info = stream.info().await.unwrap();
        assert_eq!(info.config.num_replicas, 3);
        let leader = info.cluster.as_ref().and_then(|cluster| cluster.leader.clone()).unwrap();
        let server: usize = leader.trim_start_matches("nats-").parse().unwrap();
        survives(instance, |pids| pids.nats_servers[server], Load::start(instance).await).await;

        survives(instance, |pids| pids.gateways[0], Load::start(instance).await).await;
        put_away(instance).await;
    });
}
