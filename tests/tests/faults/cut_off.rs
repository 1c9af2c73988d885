//! What does not arrive between processes that both live: commands of a follower to its leader, and checkpoints of a leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farthing_tests::instance::Instance;
use farthing_tests::leader::{led, spread, taken_over};
use farthing_tests::link::{Cut, Link, free_address};
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::kill;
use farthing_tests::provider::json_text;
use farthing_tests::side_gateway::SideGateway;
use farthing_tests::wait::{eventually, within};
use serde_json::json;

use crate::load::Load;
use crate::{HEAL, aftermath, put_away, rounds, run};

const FLAGS: [&str; 4] = ["--allow-address", "127.0.0.0/8", "--sweep-after-seconds", "5"];

/// Cuts a follower off the leader of its callers' partition, and restores the way.
async fn cut_off(cut: Cut) {
    let instance = Instance::of_test(1).await;
    let log = instance.log().await;
    let leader = free_address();
    let link = Link::to(leader).await;
    let (listen, url) =
        (format!("--gateways-listen={leader}"), format!("--gateways-url=http://{}", link.address));
    let flags = [&FLAGS[..], &[&listen, &url]].concat();
    let side = SideGateway::start(instance, &flags).await;
    let before = spread(&log.sql, 2).await;
    let side_id = side.id().await;
    for _ in 0..rounds() {
        let merchant = Merchant::led_by(instance, &side_id).await;
        let other = Merchant::led_by(instance, &side_id).await;
        let side_address = side.address;
        let way = move |task: usize| {
            if task.is_multiple_of(2) { Some(side_address) } else { instance.try_gateway(0) }
        };
        let load = Load::of(merchant, Arc::new(way)).await;
        load.calls(200).await;
        link.cut(cut);
        // Commands wait for a leader for 8 s.
        let refused = other.post("/v1/customers", &json!({"name": "nobody"})).await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        // The leader's own callers see nothing of it.
        load.calls(200).await;
        link.restore();
        eventually("the follower reaches its leader again", async || {
            let made = other.post("/v1/customers", &json!({"name": "somebody"})).await;
            (made.status == 201).then_some(())
        })
        .await;
        load.calls(200).await;
        let load = load.stop().await;
        for seen in &load.seen {
            let task: usize = seen.marker.split('-').nth(1).and_then(|task| task.parse().ok()).unwrap();
            assert!(seen.complete, "{seen:?}");
            let is_known = seen.status == 200 || (!task.is_multiple_of(2) && seen.status == 503);
            assert!(is_known, "{seen:?}");
        }
        assert_eq!(led(&log.sql).await, before, "leases are in Postgres: nobody was taken for dead");
        aftermath::check(instance, &load).await;
    }
    drop(side);
    put_away(instance).await;
}

#[test]
fn a_follower_that_is_cut_off_its_leader_refuses_and_goes_on_later() {
    run(cut_off(Cut::Closed));
}

#[test]
fn a_follower_whose_commands_vanish_on_the_way_refuses_and_goes_on_later() {
    run(cut_off(Cut::Silent));
}

/// Whether an append waits for the lock of a head.
const APPEND_WAITS: &str = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)";

#[test]
fn a_call_whose_opening_was_not_confirmed_to_its_follower_is_not_sent_and_its_key_is_free_again() {
    run(async {
        let instance = Instance::of_test(1).await;
        let log = instance.log().await;
        let leader = free_address();
        let link = Link::to(leader).await;
        let (listen, url) =
            (format!("--gateways-listen={leader}"), format!("--gateways-url=http://{}", link.address));
        let side = SideGateway::start(instance, &[&FLAGS[..], &[&listen, &url]].concat()).await;
        spread(&log.sql, 2).await;
        let merchant = Merchant::led_by(instance, &side.id().await).await;
        merchant.credit_own("10").await;
        let endpoint = instance.provider.endpoint(|_| json_text(200, "{}"));
        let post =
            || forward("POST", &endpoint.url).header("Idempotency-Key", "one").bearer(&merchant.secret_key);

        // The leader's append waits for the lock, and its answer vanishes on the way.
        let lock = "BEGIN; SELECT FROM ledger.heads WHERE partition = ";
        let lock = format!("{lock}{} FOR UPDATE", merchant.partition().await);
        log.sql.batch_execute(&lock).await.unwrap();
        let (request, follower) = (post(), instance.gateway(0));
        let call = tokio::spawn(async move { request.send(follower).await });
        let waits =
            async || log.sql.query_one(APPEND_WAITS, &[]).await.unwrap().get::<_, bool>(0).then_some(());
        eventually("the opening is being appended", waits).await;
        link.cut(Cut::Silent);
        log.sql.batch_execute("COMMIT").await.unwrap();
        let opened = async || (merchant.of_kind("request.opened").await.len() == 1).then_some(());
        eventually("the call is open", opened).await;
        call.await.unwrap().unwrap().refused(503, "ledger_unavailable");
        assert_eq!(endpoint.calls().len(), 0, "it was not sent");
        link.restore();

        post().send(side.address).await.unwrap().refused(409, "idempotency_in_progress");
        within(HEAL, "the key is free", async || {
            (post().send(side.address).await.unwrap().status == 200).then_some(())
        })
        .await;
        assert_eq!(endpoint.calls().len(), 1);
        let failed = merchant.of_kind("request.failed").await;
        assert_eq!((failed.len(), &failed[0].body["reason"]), (1, &json!("abandoned")));
        assert_eq!(merchant.of_kind("request.metered").await.len(), 1);
        merchant.nothing_is_held().await;
        drop(side);
        put_away(instance).await;
    });
}

/// From now on, no checkpoint of the partition in the setting is stored.
const LOSE: &str = "\
CREATE FUNCTION public.lose_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the checkpoint is lost';
END $$;
CREATE TRIGGER lose_checkpoint BEFORE UPDATE ON ledger.checkpoints FOR EACH ROW
WHEN (NEW.position <> OLD.position) EXECUTE FUNCTION public.lose_checkpoint()";

const KEEP: &str =
    "DROP TRIGGER lose_checkpoint ON ledger.checkpoints; DROP FUNCTION public.lose_checkpoint()";

/// The position of the live checkpoint, and that of the head.
const POSITIONS: &str = "\
SELECT c.position, h.position FROM ledger.heads AS h
JOIN ledger.checkpoints AS c ON c.partition = h.partition AND c.generation = h.generation WHERE h.partition = $1";

#[test]
fn a_leader_that_follows_one_whose_checkpoints_were_lost_knows_every_charge() {
    run(async {
        let instance = Instance::of_test(1).await;
        let log = instance.log().await;
        for _ in 0..rounds() {
            let side = SideGateway::start(instance, &FLAGS).await;
            spread(&log.sql, 2).await;
            let side_id = side.id().await;
            let merchant = Merchant::led_by(instance, &side_id).await;
            let partition = merchant.partition().await;
            let positions = async || {
                let row = log.sql.query_one(POSITIONS, &[&partition]).await.unwrap();
                (row.get::<_, i64>(0), row.get::<_, i64>(1))
            };
            let is_gone = Arc::new(AtomicBool::new(false));
            let (gone, address) = (Arc::clone(&is_gone), side.address);
            let way = move |task: usize| {
                let is_odd = !task.is_multiple_of(2);
                if is_odd || gone.load(Ordering::SeqCst) { instance.try_gateway(0) } else { Some(address) }
            };
            let load = Load::of(merchant, Arc::new(way)).await;
            load.calls(100).await;
            log.sql.batch_execute(LOSE).await.unwrap();
            let (stored, _) = positions().await;
            load.calls(200).await;
            is_gone.store(true, Ordering::SeqCst);
            kill(side.pid());
            taken_over(&log.sql, partition, &side_id).await;
            // The next leader has no newer checkpoint, and cannot store one either.
            load.calls(100).await;
            let (still, head) = positions().await;
            assert_eq!(still, stored);
            assert!(head - stored > 400, "{head} is not far behind {stored}");
            log.sql.batch_execute(KEEP).await.unwrap();
            load.calls(100).await;
            let load = load.stop().await;
            eventually("the checkpoint reaches the head", async || {
                let (stored, head) = positions().await;
                (stored == head).then_some(())
            })
            .await;
            aftermath::check(instance, &load).await;
            drop(side);
        }
        put_away(instance).await;
    });
}
