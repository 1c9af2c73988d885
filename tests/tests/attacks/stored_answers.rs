//! Long answers under idempotency keys that end all at once. Of each merchant one is stored at a time, so that nobody's
//! commit waits for all of them, and so many bytes a second, so that they do not fill the disk.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use farthing_tests::client::{Body, Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, head, json as answer_json};
use farthing_tests::run;
use farthing_tests::scrape::scrape;
use farthing_tests::side_gateway::SideGateway;
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

/// Calls at once of a merchant with a limited rate.
const RATED: u32 = 4;

/// The requests that callers make.
const API: &[(&str, &str)] = &[("listener", "api")];

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

/// The ids of the merchant's calls that were charged, in order. One that was charged twice is there twice.
async fn charged(merchant: &Merchant) -> Vec<String> {
    let events = merchant.events().await.into_iter();
    let metered = events.filter(|event| event.kind == "request.metered");
    let mut ids: Vec<_> = metered.map(|event| event.text("request_id").to_owned()).collect();
    ids.sort();
    ids
}

/// Repeats a call with a long answer at another gateway, which has the answer of the first one.
async fn is_stored(request: &Request, first_id: &str, to: SocketAddr) {
    let again = request.send(to).await.unwrap();
    assert_eq!((again.status, again.complete), (200, true), "{}", again.text());
    assert_eq!(again.head.header("idempotency-replayed"), Some("true"));
    assert_eq!((again.request_id().as_str(), again.body.len()), (first_id, BODY));
    let Body::Whole(asked) = &request.body else { panic!("no body: {request:?}") };
    assert!(again.body.starts_with(asked), "the answer to another call");
}

/// Another merchant's long answer is stored, and the attacker's own calls without a key and with a short answer end. Returns
/// the ids of the attacker's.
async fn others_go_on(
    gateway: SocketAddr,
    (attacker, victim): (&Merchant, &Merchant),
    long: &Endpoint,
) -> Vec<String> {
    let response = keyed(victim, long, 0).send(gateway).await.unwrap();
    assert_eq!((response.status, response.body.len(), response.complete), (200, BODY, true));
    victim.charged(&response).await;
    let quick = attacker.instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 3}})));
    let without_key = forward("POST", &long.url).bearer(&attacker.secret_key).json(&json!({"input": "x"}));
    let mut ids = Vec::new();
    for call in [without_key, keyed(attacker, &quick, 1_000)] {
        let response = call.send(gateway).await.unwrap();
        assert_eq!((response.status, response.complete), (200, true), "{}", response.text());
        attacker.charged(&response).await;
        ids.push(response.request_id());
    }
    ids
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
            ids.sort();
            assert_eq!(charged(attacker).await, ids, "each call is charged once");
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

#[test]
fn long_answers_are_stored_at_the_rate_of_their_merchant_and_keep_no_others_waiting() {
    run(async {
        let (attacker, victim) = (Merchant::funded("10").await, Merchant::funded("10").await);
        // A long answer, which has a head as well, takes a little more than a second.
        let rate = format!("--stored-response-rate-per-merchant={}", BODY / 1024);
        let gateway = SideGateway::start(attacker.instance, &["--allow-address=127.0.0.0/8", &rate]).await;
        let open = Gate::default();
        open.open();
        let endpoint = answering(attacker.instance, &open);
        let (mut calls, started) = (JoinSet::new(), Instant::now());
        for number in 0..RATED {
            let (request, to) = (keyed(&attacker, &endpoint, number), gateway.address);
            calls.spawn(async move {
                let first = request.send(to).await.unwrap();
                (started.elapsed(), request, first)
            });
        }
        let mut ids = others_go_on(gateway.address, (&attacker, &victim), &endpoint).await;
        let mut ended = Vec::new();
        for (at, request, first) in calls.join_all().await {
            assert_eq!((first.status, first.body.len(), first.complete), (200, BODY, true));
            is_stored(&request, &first.request_id(), attacker.gateway()).await;
            ids.push(first.request_id());
            ended.push(at);
        }
        ended.sort();
        // The first one is stored at once.
        for (seconds, at) in (0..).zip(&ended) {
            assert!(at.as_secs() >= seconds, "faster than the rate: {ended:?}");
        }
        ids.sort();
        assert_eq!(charged(&attacker).await, ids, "each call is charged once");
        attacker.nothing_is_held().await;
        victim.nothing_is_held().await;
    });
}

#[test]
fn a_gateway_that_stops_stores_at_once_what_waits_for_the_rate() {
    run(async {
        let (attacker, victim) = (Merchant::funded("10").await, Merchant::funded("10").await);
        // A long answer takes more than a minute.
        let flags =
            ["--allow-address=127.0.0.0/8", "--stored-response-rate-per-merchant=4", "--grace-seconds=60"];
        let mut gateway = SideGateway::start(attacker.instance, &flags).await;
        let (open, gate) = (Gate::default(), Gate::default());
        open.open();
        let (at_once, endpoint) = (answering(attacker.instance, &open), answering(attacker.instance, &gate));
        // The first one is longer than what may be stored at once, so the next one waits.
        let request = keyed(&attacker, &at_once, 0);
        let first = request.send(gateway.address).await.unwrap();
        assert_eq!((first.status, first.body.len(), first.complete), (200, BODY, true));
        let mut stored = vec![(request, first.request_id())];

        let mut calls = JoinSet::new();
        for number in 1..=RATED {
            let (request, to) = (keyed(&attacker, &endpoint, number), gateway.address);
            calls.spawn(async move {
                let first = request.send(to).await.unwrap();
                (request, first)
            });
        }
        let all = calls.len() + 1;
        // The caller of one leaves when all but the end has come.
        let left = keyed(&attacker, &endpoint, RATED + 1);
        let mut connection = Connection::open(gateway.address).await.unwrap();
        connection.send(&left).await.unwrap();
        let head = connection.head("POST").await.unwrap();
        stored.push((left, head.header("x-service-request-id").unwrap().to_owned()));
        let mut read = 0;
        while read < BODY - 1 {
            read += connection.read.piece().await.unwrap().unwrap().len();
        }
        gate.open();
        eventually("all answers have come", async || {
            let calls = endpoint.calls();
            (calls.len() == all && calls.iter().all(|call| call.is_finished())).then_some(())
        })
        .await;
        drop(connection);
        let mut ids = others_go_on(gateway.address, (&attacker, &victim), &at_once).await;
        eventually("the call that was left is in flight, and its connection is closed", async || {
            let shown = scrape(gateway.operator).await;
            let counts = ["farthing_connections", "farthing_requests_in_flight"];
            let [connections, in_flight] = counts.map(|name| shown.count(name, API));
            ((connections, in_flight) == (u64::from(RATED), u64::from(RATED) + 1)).then_some(())
        })
        .await;
        let so_far = charged(&attacker).await.len();
        assert!(so_far < 1 + ids.len() + all, "nothing has waited: {so_far} are charged");

        gateway.terminate();
        for (request, first) in calls.join_all().await {
            assert_eq!((first.status, first.body.len(), first.complete), (200, BODY, true));
            stored.push((request, first.request_id()));
        }
        assert!(gateway.ended().await.success());
        for (request, id) in stored {
            is_stored(&request, &id, attacker.gateway()).await;
            ids.push(id);
        }
        assert_eq!(endpoint.calls().len(), all, "a repeated call is not made");
        ids.sort();
        assert_eq!(charged(&attacker).await, ids, "each call is charged once");
        attacker.nothing_is_held().await;
        victim.nothing_is_held().await;
    });
}
