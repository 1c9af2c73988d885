//! Long answers under idempotency keys that end all at once. Of each merchant one is stored at a time, so that nobody's
//! commit waits for all of them.

use std::collections::BTreeSet;

use farthing_tests::client::{Body, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, head, json as answer_json};
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::wait::eventually;
use serde_json::json;
use tokio::task::JoinSet;

/// Merchants that attack, each in a partition of its own.
const ATTACKERS: usize = 3;

/// The calls of each attacker: a batch may have as many bytes as fourteen of their answers.
const CALLS: u32 = 40;

/// The bytes of the longest body that is stored.
const BODY: usize = 256 * 1024;

/// The most bytes of a stored answer: its body, and its head.
const STORED: i64 = 257 * 1024;

/// Calls of another merchant, in another partition, while the answers are stored.
const VICTIMS_CALLS: usize = 10;

/// The bytes of the answers that each transaction has stored in each partition.
const STORED_TOGETHER: &str = "\
SELECT partition, sum(length(answer)) FROM ledger.idempotency WHERE answer IS NOT NULL
GROUP BY partition, xmin::text";

/// So many merchants of `instance` in different partitions, each with the number of its partition.
async fn apart(instance: &'static Instance, count: usize) -> Vec<(Merchant, i16)> {
    let (mut merchants, mut partitions) = (Vec::new(), BTreeSet::new());
    while merchants.len() < count {
        let merchant = Merchant::of(instance).await;
        let partition = merchant.partition().await;
        if partitions.insert(partition) {
            merchant.credit_own("100").await;
            merchants.push((merchant, partition));
        }
    }
    merchants
}

/// An endpoint whose answers begin with the body of the call, and end when `gate` opens.
fn answering(instance: &Instance, gate: &Gate) -> Endpoint {
    let gate = gate.clone();
    instance.provider.endpoint(move |call| {
        let (mut body, length) = (call.body.clone(), BODY.to_string());
        body.resize(BODY - 1, b'x');
        let begin = head(200, &[("Content-Length", length.as_str())]);
        vec![begin, Step::Bytes(body), Step::Wait(gate.clone()), Step::Bytes(b"x".to_vec())]
    })
}

/// A call of `merchant` to `endpoint` with a key of its own.
fn keyed(merchant: &Merchant, endpoint: &Endpoint, number: u32) -> Request {
    let call = forward("POST", &endpoint.url).bearer(&merchant.secret_key);
    let call = call.json(&json!({"input": format!("{} {number}", merchant.id)}));
    call.header("Idempotency-Key", format!("answer-{number}"))
}

#[test]
fn of_long_answers_that_end_at_once_each_merchant_stores_one_at_a_time() {
    run(async {
        let instance = Instance::of_test(1).await;
        let mut attackers = apart(instance, ATTACKERS + 1).await;
        let (victim, _) = attackers.pop().unwrap();
        let gate = Gate::default();
        let endpoint = answering(instance, &gate);
        let mut calls = JoinSet::new();
        for (at, (attacker, _)) in attackers.iter().enumerate() {
            for number in 0..CALLS {
                let (request, to) = (keyed(attacker, &endpoint, number), attacker.gateway());
                calls.spawn(async move {
                    let first = request.send(to).await.unwrap();
                    (at, request, first)
                });
            }
        }
        let count = calls.len();
        eventually("all calls are in flight", async || (endpoint.calls().len() == count).then_some(())).await;

        // Nothing is appended in the attackers' partitions until all their answers have come.
        let log = instance.log().await;
        let partitions: Vec<_> = attackers.iter().map(|(_, partition)| partition.to_string()).collect();
        let heads = format!("SELECT FROM ledger.heads WHERE partition IN ({})", partitions.join(", "));
        log.sql.batch_execute(&format!("BEGIN; {heads} FOR UPDATE")).await.unwrap();
        gate.open();
        eventually("a settlement of each attacker waits", async || {
            let shown = scrape(instance.operator(0)).await;
            let waits = |partition: &String| {
                let queued = shown.values("farthing_queue_commands", &[("partition", partition.as_str())]);
                queued.iter().any(|commands| *commands >= 1.0)
            };
            partitions.iter().all(waits).then_some(())
        })
        .await;
        log.sql.batch_execute("COMMIT").await.unwrap();

        let quick = instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 3}})));
        for _ in 0..VICTIMS_CALLS {
            let response = victim.call(&victim.secret_key, &quick.url).await;
            response.expect(200);
            assert_eq!(victim.charged(&response).await["usage"]["tokens"]["input"], 3);
        }
        victim.nothing_is_held().await;

        let mut ids = vec![Vec::new(); ATTACKERS];
        for (at, request, first) in calls.join_all().await {
            assert_eq!((first.status, first.body.len(), first.complete), (200, BODY, true));
            let Body::Whole(asked) = &request.body else { panic!("no body: {request:?}") };
            assert!(first.body.starts_with(asked), "the answer to another call");
            let again = request.send(instance.gateway(0)).await.unwrap();
            assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
            assert_eq!((again.status, again.request_id()), (200, first.request_id()));
            assert!(again.complete && again.body == first.body, "another answer is replayed");
            ids[at].push(first.request_id());
        }
        assert_eq!(endpoint.calls().len(), count, "a repeated call is not made");
        for ((attacker, _), mut ids) in attackers.iter().zip(ids) {
            attacker.nothing_is_held().await;
            let events = attacker.events().await.into_iter();
            let metered = events.filter(|event| event.kind == "request.metered");
            let mut charged: Vec<_> = metered.map(|event| event.text("request_id").to_owned()).collect();
            charged.sort();
            ids.sort();
            assert_eq!(charged, ids, "each call is charged once");
        }

        let mut stored = 0;
        for row in log.sql.query(STORED_TOGETHER, &[]).await.unwrap() {
            let (partition, bytes): (i16, i64) = (row.get(0), row.get(1));
            assert!(bytes <= STORED, "a batch of partition {partition} has {bytes} bytes");
            stored += bytes;
        }
        assert!(stored >= i64::try_from(count * BODY).unwrap(), "{stored} bytes are stored");
    });
}
