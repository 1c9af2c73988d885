//! An instance on a Citus cluster and a cluster of NATS servers, whose nodes are killed under load. Where Citus is not
//! installed, the test says so and does nothing; `./test` says it again at its end.

use farthing_tests::feed;
use farthing_tests::instance::{CLUSTER, Instance, Pids, is_running, kill};
use farthing_tests::wait::within;
use farthing_tests::{cluster, run};

use crate::load::Load;
use crate::{HEAL, aftermath, put_away};

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

#[test]
fn killing_a_worker_a_nats_server_and_a_gateway_of_a_cluster_loses_and_doubles_no_charge() {
    if !cluster::is_installed() {
        return;
    }
    run(async {
        let instance: &'static Instance = Box::leak(Box::new(Instance::start_with(2, &CLUSTER).await));
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
        let worker: i64 = log.sql.query_one(WORKER_OF, &[&partition]).await.unwrap().get(0);
        let worker = usize::try_from(worker).unwrap();
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
