//! The metrics of forwarded calls: added latency, streams, replays, and callers who leave. One gateway, which makes these
//! calls alone.

use std::time::{Duration, Instant};

use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, json, last_chunk};
use farthing_tests::run;
use farthing_tests::scrape::{Scrape, scrape};
use farthing_tests::wait::{eventually, eventually_ok};
use serde_json::json;

/// How long the provider lets a call wait, each time.
const PAUSE: Duration = Duration::from_secs(1);

/// A merchant, its credential, and what the gateway had counted before.
struct Scene {
    instance: &'static Instance,
    merchant: Merchant,
    credential: String,
    before: Scrape,
}

/// A metric, its labels, and by how much it moves.
type Moved<'a> = (&'a str, &'a [(&'a str, &'a str)], u64);

impl Scene {
    async fn start() -> Self {
        let instance = Instance::of_test(1).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        let customer = merchant.customer("10").await;
        let credential = merchant.billing(&customer, &merchant.call_meter("0.01").await);
        let before = scrape(instance.operator(0)).await;
        Self { instance, merchant, credential, before }
    }

    /// From now on only later calls count.
    async fn begin(&mut self) {
        self.before = scrape(self.instance.operator(0)).await;
    }

    /// Asserts by how much each of these has moved since the beginning, once the first has.
    async fn moved(&self, expected: &[Moved<'_>]) {
        let seen = async || {
            let after = scrape(self.instance.operator(0)).await;
            let moved =
                |(name, labels, _): &Moved<'_>| after.count(name, labels) - self.before.count(name, labels);
            expected.iter().map(moved).collect::<Vec<_>>()
        };
        let wanted: Vec<u64> = expected.iter().map(|(_, _, moved)| *moved).collect();
        let seen = eventually_ok("the first one has moved", async || {
            let seen = seen().await;
            if seen[0] >= wanted[0] { Ok(seen) } else { Err(format!("{seen:?}")) }
        })
        .await;
        assert_eq!(seen, wanted, "{expected:?}");
    }

    /// The time by which a sum of seconds has grown since the beginning.
    async fn time(&self, name: &str) -> Duration {
        let now = scrape(self.instance.operator(0)).await;
        let [now, before] =
            [&now, &self.before].map(|scrape| Duration::from_secs_f64(scrape.values(name, &[])[0]));
        now.checked_sub(before).expect("the sum grows")
    }

    /// Makes a call of each endpoint, and returns the time that its caller waited for all of them.
    async fn timed(&self, endpoint: &Endpoint, calls: u32) -> Duration {
        let begun = Instant::now();
        for _ in 0..calls {
            let answer = self.merchant.fetch(&self.credential, &endpoint.url).await;
            assert_eq!((answer.status, answer.complete), (200, true), "{}", answer.text());
        }
        begun.elapsed()
    }
}

#[test]
fn the_time_that_the_gateway_adds_is_that_of_the_call_without_the_waits_for_the_provider() {
    run(async {
        let mut scene = Scene::start().await;
        let late = scene.instance.provider.endpoint(|_| {
            let mut steps = vec![Step::Pause(PAUSE)];
            steps.extend(json(200, &json!({"usage": {"tokens": 1}})));
            steps
        });
        let streaming = scene.instance.provider.endpoint(|_| {
            let usage = chunk("data: {\"usage\":{\"tokens\":7}}\n\n");
            vec![event_stream(), chunk("data: {}\n\n"), Step::Pause(PAUSE), usage, last_chunk()]
        });
        // While a response is awaited, the gateway has nothing to do: none of the wait is its time. In a stream, it may
        // still be busy with what came before the pause.
        for (endpoint, calls, surely_waited) in [(&late, 2, PAUSE * 2), (&streaming, 2, PAUSE)] {
            scene.begin().await;
            let (whole, waited) = (scene.timed(endpoint, calls).await, PAUSE * calls);
            scene
                .moved(&[
                    ("farthing_call_added_seconds_count", &[], u64::from(calls)),
                    ("farthing_call_duration_seconds_count", &[], u64::from(calls)),
                    ("farthing_calls_total", &[("status", "2xx"), ("metered", "yes")], u64::from(calls)),
                ])
                .await;
            let duration = scene.time("farthing_call_duration_seconds_sum").await;
            let added = scene.time("farthing_call_added_seconds_sum").await;
            assert!((waited..=whole).contains(&duration), "{waited:?} {duration:?} {whole:?}");
            assert!(!added.is_zero() && added + surely_waited <= whole, "{added:?} of {whole:?}");
            assert!(added < duration, "{added:?} {duration:?}");
        }
        scene.instance.stop().await;
        scene.instance.clear();
    });
}

#[test]
fn replays_errors_and_callers_who_leave_are_counted_exactly() {
    run(async {
        let mut scene = Scene::start().await;
        let (instance, credential) = (scene.instance, scene.credential.clone());
        let good = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 5}})));

        // A call and two replays; another body under the same key is an error.
        let keyed = |body: &str| {
            let call = forward("POST", &good.url).json(&json!({"input": body}));
            call.header("Idempotency-Key", "one").bearer(&credential)
        };
        for request in [keyed("a"), keyed("a"), keyed("a")] {
            request.send(instance.gateway(0)).await.unwrap().expect(200);
        }
        keyed("b").send(instance.gateway(0)).await.unwrap().refused(422, "idempotency_key_reused");
        assert_eq!(good.calls().len(), 1);
        scene
            .moved(&[
                ("farthing_calls_replayed_total", &[], 2),
                ("farthing_calls_total", &[], 1),
                ("farthing_call_duration_seconds_count", &[], 1),
                ("farthing_forward_errors_total", &[], 1),
                ("farthing_forward_errors_total", &[("status", "422")], 1),
            ])
            .await;

        // Three callers leave a stream, which is read on and charged; its time is nobody's.
        scene.begin().await;
        let gate = Gate::default();
        let waits = gate.clone();
        let streaming = instance.provider.endpoint(move |_| {
            let usage = chunk("data: {\"usage\":{\"tokens\":9}}\n\n");
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(waits.clone()), usage, last_chunk()]
        });
        for _ in 0..3 {
            let mut call = Connection::open(instance.gateway(0)).await.unwrap();
            call.send(&forward("GET", &streaming.url).bearer(&credential)).await.unwrap();
            call.head("GET").await.unwrap();
            call.read.piece().await.unwrap();
        }
        let open = async || {
            let now = scrape(instance.operator(0)).await;
            let drained = now.values("farthing_drain_slots_taken", &[("provider_key", "caller")]);
            (now.count("farthing_open_calls", &[]), format!("{drained:?}"))
        };
        eventually("they are read on", async || (open().await == (3, "[3.0]".to_owned())).then_some(()))
            .await;
        gate.open();
        scene
            .moved(&[
                ("farthing_calls_total", &[("status", "2xx"), ("metered", "yes")], 3),
                ("farthing_calls_total", &[], 3),
                ("farthing_call_duration_seconds_count", &[], 0),
                ("farthing_call_added_seconds_count", &[], 0),
                ("farthing_forward_errors_total", &[], 0),
                ("farthing_calls_unsettled_total", &[], 0),
            ])
            .await;
        eventually("nothing is open", async || (open().await == (0, "[0.0]".to_owned())).then_some(())).await;

        // A provider that breaks off, and a request that is no call.
        scene.begin().await;
        let breaks_off =
            instance.provider.endpoint(|_| vec![event_stream(), chunk("data: {}\n\n"), Step::Close]);
        let broken = scene.merchant.fetch(&credential, &breaks_off.url).await;
        assert!(!broken.complete);
        let unfit =
            Request::new("OPTIONS", "/v1/forward").bearer(&credential).send(instance.gateway(0)).await;
        assert_eq!(unfit.unwrap().status, 405);
        scene
            .moved(&[
                ("farthing_calls_total", &[("status", "2xx"), ("metered", "no")], 1),
                ("farthing_calls_total", &[], 1),
                ("farthing_call_duration_seconds_count", &[], 0),
                ("farthing_forward_errors_total", &[("status", "405")], 1),
                ("farthing_forward_errors_total", &[], 1),
            ])
            .await;
        instance.stop().await;
        instance.clear();
    });
}

/// Such calls are submitted as metered, and fail by the terms of their opening, which only their leader has. In this release it
/// does not tell other gateways, which count the calls as they were submitted.
#[test]
fn a_call_that_fails_in_the_log_is_not_counted_as_metered() {
    run(async {
        // Each partition is led by one of them.
        let instance = Instance::of_test(2).await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("100").await;
        let customer = merchant.customer("10").await;
        let meter = merchant
            .meter(json!({
                "name": "tokens", "rate_type": "fixed", "tier_type": "tokens_1m", "max_fee": "0.5",
                "tiers": [{"start": 0, "rate": "1"}], "service_charge_payer": "merchant", "on_disconnect": "cancel",
            }))
            .await;
        let credential = merchant.billing(&customer, &meter);
        let usable = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 5}})));
        let absurd = instance.provider.endpoint(|_| json(200, &json!({"usage": {"tokens": 2_000_000}})));
        let gate = Gate::default();
        let waits = gate.clone();
        let streaming = instance.provider.endpoint(move |_| {
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(waits.clone()), last_chunk()]
        });
        let mut counted = Vec::new();
        for number in [0, 1] {
            let before = scrape(instance.operator(number)).await;
            let to = instance.gateway(number);
            let ask = |endpoint: &Endpoint| forward("GET", &endpoint.url).bearer(&credential);
            let response = ask(&usable).send(to).await.unwrap();
            merchant.charged(&response).await;
            let response = ask(&absurd).send(to).await.unwrap();
            assert_eq!(merchant.failed(&response).await["reason"], "usage_invalid");
            let mut call = Connection::open(to).await.unwrap();
            call.send(&ask(&streaming)).await.unwrap();
            let head = call.head("GET").await.unwrap();
            call.read.piece().await.unwrap();
            drop(call);
            let left = merchant.failed_request(head.header("x-service-request-id").unwrap()).await;
            assert_eq!(left["reason"], "caller_gone");
            let moved = eventually_ok("each is counted", async || {
                let after = scrape(instance.operator(number)).await;
                let moved = ["yes", "no"].map(|metered| {
                    let labels = [("status", "2xx"), ("metered", metered)];
                    let [after, before] =
                        [&after, &before].map(|scrape| scrape.count("farthing_calls_total", &labels));
                    after - before
                });
                if moved.iter().sum::<u64>() == 3 { Ok(moved) } else { Err(format!("{moved:?}")) }
            })
            .await;
            counted.push(moved);
        }
        counted.sort_unstable();
        assert_eq!(counted, [[1, 2], [3, 0]], "by the leader as in the log, by the other one as submitted");
        gate.open();
        merchant.nothing_is_held().await;
        instance.stop().await;
        instance.clear();
    });
}
