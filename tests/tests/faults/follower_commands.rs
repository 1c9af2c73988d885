//! Commands that a follower sends to the leader of their partition, which dies, hangs or stops meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::leader::spread;
use farthing_tests::log::Log;
use farthing_tests::merchant::Merchant;
use farthing_tests::process::signal;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::task::JoinSet;

use crate::leaders::{Two, all_answered};
use crate::load::Load;
use crate::{aftermath, run};

/// The idempotent POSTs of a test.
const KEYS: usize = 60;

/// Callers who send one POST after the other.
const CALLERS: usize = 8;

const LOCK_HEAD: &str = "SELECT FROM ledger.heads WHERE partition = $1 FOR UPDATE";

/// The appends that wait for this session.
const APPENDS_WAIT: &str = "\
SELECT count(*) FROM pg_stat_activity
WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)) AND query LIKE '%ledger.append%'";

/// An idempotent POST of this number.
fn post(merchant: &Merchant, number: usize) -> Request {
    let path = if number.is_multiple_of(2) { "/v1/customers" } else { "/v1/spend_keys" };
    let name = format!("number {number}");
    let request = Request::new("POST", path).json(&json!({"name": name})).bearer(&merchant.secret_key);
    request.header("Idempotency-Key", name)
}

/// Sends the posts through the follower, sends the leader a signal while an append of theirs is under way, and expects every
/// answer. Returns the number of things that they created.
async fn answered_once(follower: SocketAddr, leader: u32, name: &str, merchant: &Merchant) -> usize {
    // The follower knows the key. Few unknown keys are looked up at once, and each look-up would wait for the next leader.
    let known = Request::new("GET", "/v1/customers").bearer(&merchant.secret_key);
    known.send(follower).await.unwrap().expect(200);
    let before = merchant.events().await.len();
    let head = HeldHead::of(merchant).await;
    let mut calls = Vec::new();
    for number in 0..KEYS {
        let mut call = Connection::open(follower).await.unwrap();
        call.send(&post(merchant, number)).await.unwrap();
        calls.push(call);
    }
    head.append_waits().await;
    assert_eq!(merchant.events().await.len(), before, "no post is answered yet");
    signal(leader, name);
    // The append is carried out, and its answer reaches nobody in time.
    drop(head);
    for (number, call) in calls.iter_mut().enumerate() {
        let answer = call.response("POST").await.unwrap();
        answer.expect(201);
        let again = post(merchant, number).send(follower).await.unwrap();
        assert_eq!((again.status, &again.body), (answer.status, &answer.body));
        assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
    }
    created(merchant).await
}

/// The lock of the head of a merchant's partition, until it is dropped.
struct HeldHead {
    log: Log,
}

impl HeldHead {
    async fn of(merchant: &Merchant) -> Self {
        let log = merchant.instance.log().await;
        log.sql.batch_execute("BEGIN").await.unwrap();
        log.sql.execute(LOCK_HEAD, &[&merchant.partition().await]).await.unwrap();
        Self { log }
    }

    /// Waits until an append waits for this transaction.
    async fn append_waits(&self) {
        eventually("an append waits for the head", async || {
            let waiting: i64 = self.log.sql.query_one(APPENDS_WAIT, &[]).await.unwrap().get(0);
            (waiting > 0).then_some(())
        })
        .await;
    }
}

/// The number of customers and spend keys that were ever created.
async fn created(merchant: &Merchant) -> usize {
    let events = merchant.events().await;
    events
        .iter()
        .filter(|event| ["customer.created", "spend_key.created"].contains(&event.kind.as_str()))
        .count()
}

#[test]
fn commands_that_a_follower_sent_to_a_leader_that_dies_have_one_effect_each() {
    run(async {
        let two = Two::start().await;
        let Two { instance, side, side_id, .. } = &two;
        let instance: &'static Instance = instance;
        let posting = Merchant::led_by(instance, side_id).await;
        let merchant = Merchant::led_by(instance, side_id).await;
        let load = Load::of(merchant, Arc::new(|_| instance.try_gateway(0))).await;
        load.calls(200).await;
        let created = answered_once(instance.gateway(0), side.pid(), "KILL", &posting).await;
        assert_eq!(created, KEYS, "one effect for each key");
        load.calls(200).await;
        let load = load.stop().await;
        all_answered(&load, |_| true);
        posting.nothing_is_held().await;
        aftermath::check(instance, &load).await;
        two.put_away().await;
    });
}

#[test]
fn posts_without_a_key_are_all_answered_while_their_leader_stops() {
    run(async { are_all_answered_while_their_leader_stops(Two::start().await).await });
}

#[test]
fn so_are_they_where_leases_are_long() {
    run(async { are_all_answered_while_their_leader_stops(Two::with_long_leases().await).await });
}

async fn are_all_answered_while_their_leader_stops(mut two: Two) {
    let Two { instance, side, side_id, .. } = &mut two;
    let merchant = Merchant::led_by(instance, side_id).await;
    let follower = instance.gateway(0);
    let (posted, is_enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let post = Request::new("POST", "/v1/customers").json(&json!({})).bearer(&merchant.secret_key);
        let (posted, is_enough) = (Arc::clone(&posted), Arc::clone(&is_enough));
        callers.spawn(async move {
            while !is_enough.load(Ordering::SeqCst) {
                post.clone().send(follower).await.unwrap().expect(201);
                posted.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let more = async |what: &str| {
        let before = posted.load(Ordering::SeqCst);
        eventually(what, async || (posted.load(Ordering::SeqCst) >= before + 100).then_some(())).await;
    };
    more("posts reach the leader").await;
    side.terminate();
    assert!(side.ended().await.success(), "{}", side.logged());
    more("posts reach the next leader").await;
    is_enough.store(true, Ordering::SeqCst);
    while let Some(ended) = callers.join_next().await {
        ended.expect("every post is answered with 201");
    }
    assert_eq!(created(&merchant).await, posted.load(Ordering::SeqCst), "one customer for each answer");
    two.put_away().await;
}

#[test]
fn posts_that_a_follower_sent_to_a_leader_that_hangs_are_answered_by_the_next_one() {
    run(async {
        let two = Two::start().await;
        let Two { instance, log, own_id: hung_id, side, .. } = &two;
        let merchant = Merchant::led_by(instance, hung_id).await;
        let hung = instance.ready().pids.gateways[0];
        let answered = answered_once(side.address, hung, "STOP", &merchant).await;
        assert_eq!(answered, KEYS, "one effect for each key");
        signal(hung, "CONT");
        spread(&log.sql, 2).await;
        // What the hung gateway had not read yet is refused.
        merchant.post("/v1/customers", &json!({"name": "one more"})).await.expect(201);
        assert_eq!(created(&merchant).await, KEYS + 1);
        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        two.put_away().await;
    });
}
