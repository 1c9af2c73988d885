//! Trouble that fills the panels which show nothing, or zero, while all is well. Each lasts until Prometheus has seen it.

use farthing_tests::client::Request;
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::signal;
use farthing_tests::servers;
use farthing_tests::wait::{eventually, eventually_ok};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::{MAX_QUEUED, Scene, Watch};
use crate::overload::lock_head;

/// Makes every count of a call against a rate limit wait, and with it a connection of the pool of reads.
const HOLD_COUNTS: &str = "BEGIN; LOCK TABLE ledger.rate_window IN ACCESS EXCLUSIVE MODE";

/// Ends the connections that wait for a lock.
const CUT_OFF: &str = "\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()";

/// Nobody can begin a term in the partition `{partition}`.
const REFUSE_TERMS: &str = "\
CREATE FUNCTION public.refuse_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a test';
END $$;
CREATE TRIGGER refuse_terms BEFORE UPDATE ON ledger.heads FOR EACH ROW
WHEN (NEW.partition = {partition} AND NEW.epoch <> OLD.epoch) EXECUTE FUNCTION public.refuse_terms()";

const ALLOW_TERMS: &str = "DROP TRIGGER refuse_terms ON ledger.heads; DROP FUNCTION public.refuse_terms()";

/// Locks the queues of deliveries: nobody claims them, and nothing is added to them.
const HOLD_QUEUES: &str = "SELECT lane FROM webhooks.lane FOR UPDATE";

/// Lets all of it happen, one after another.
pub(super) async fn all(scene: &Scene, watch: &Watch) {
    a_call_outlives_its_caller(scene, watch).await;
    reads_wait_for_connections(scene, watch).await;
    a_partition_is_stuck_and_then_has_no_leader(scene, watch).await;
    deliveries_are_held_up(scene, watch).await;
    nats_stands_still(scene, watch).await;
}

/// A connection of its own, for a transaction.
async fn sql(scene: &Scene) -> Client {
    Log::open(&scene.instance.ready().database_url).await.sql
}

async fn a_call_outlives_its_caller(scene: &Scene, watch: &Watch) {
    let gate = scene.leave().await;
    watch.until_above_zero(&["6/A", "6/B"]).await;
    gate.open();
}

async fn reads_wait_for_connections(scene: &Scene, watch: &Watch) {
    let sql = sql(scene).await;
    // A merchant's calls are counted at few connections.
    let mut merchants = Vec::new();
    for _ in 0..16 {
        merchants.push(Merchant::of(scene.instance).await);
    }
    sql.batch_execute(HOLD_COUNTS).await.unwrap();
    let mut callers = JoinSet::new();
    for merchant in merchants.iter().chain(&merchants) {
        let to = scene.instance.gateway(0);
        let read = Request::new("GET", "/v1/models").bearer(&merchant.secret_key);
        // After 5 s, a read that waits is 503.
        callers.spawn(async move { while read.send(to).await.is_ok() {} });
    }
    watch.until_above_zero(&["19/A", "19/B"]).await;
    callers.shutdown().await;
    sql.batch_execute("ROLLBACK").await.unwrap();
}

/// Its leader can append nothing, refuses what finds the queue full, loses its connection, and no gateway can lead after
/// it.
async fn a_partition_is_stuck_and_then_has_no_leader(scene: &Scene, watch: &Watch) {
    let merchant = scene.side.merchant_of_its_own(scene.instance, "1").await;
    let (holder, sql) = (sql(scene).await, sql(scene).await);
    let refuse = REFUSE_TERMS.replace("{partition}", &merchant.partition().await.to_string());
    sql.batch_execute(&refuse).await.unwrap();
    lock_head(&holder, &merchant).await;
    let callers = create_customers(scene, &merchant);
    watch.until_above_zero(&["3/A", "3/B", "10/A", "11/A", "22/A"]).await;
    eventually_ok("an append fails", async || {
        sql.batch_execute(CUT_OFF).await.unwrap();
        watch.are_above_zero(&["7/B"]).await
    })
    .await;
    holder.batch_execute("ROLLBACK").await.unwrap();
    watch.until_above_zero(&["12/B"]).await;
    drop(callers);
    sql.batch_execute(ALLOW_TERMS).await.unwrap();
    watch.until_above_zero(&["12/C"]).await;
    eventually("its commands are taken again", async || {
        let made = merchant.post("/v1/customers", &json!({})).await;
        (made.status == 201).then_some(())
    })
    .await;
}

/// More of them at once than the queue of the side gateway takes.
fn create_customers(scene: &Scene, merchant: &Merchant) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..2 * MAX_QUEUED {
        let to = scene.side.address;
        let create = Request::new("POST", "/v1/customers").bearer(&merchant.secret_key).json(&json!({}));
        callers.spawn(async move { drop(create.send(to).await) });
    }
    callers
}

async fn deliveries_are_held_up(scene: &Scene, watch: &Watch) {
    let sql = sql(scene).await;
    eventually("a delivery waits", async || {
        scene.load().await;
        sql.batch_execute("BEGIN").await.unwrap();
        if !sql.query(HOLD_QUEUES, &[]).await.unwrap().is_empty() {
            return Some(());
        }
        sql.batch_execute("ROLLBACK").await.unwrap();
        None
    })
    .await;
    // Its webhook outbox has to wait.
    scene.load().await;
    watch.until_above_zero(&["13/A", "17/A"]).await;
    sql.batch_execute("ROLLBACK").await.unwrap();
}

/// A stopped process, which goes on when this is dropped, also after a failure.
struct Stopped(u32);

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

async fn nats_stands_still(scene: &Scene, watch: &Watch) {
    if !servers::has_own_nats("stops the NATS server for a while") {
        return;
    }
    let nats = scene.instance.ready().pids.nats.unwrap();
    signal(nats, "STOP");
    let _stopped = Stopped(nats);
    scene.load().await;
    watch.until_above_zero(&["15/A"]).await;
}
