//! A spend key's rate limit over a whole minute: evenly spaced calls to two gateways in turn, ten times as many as the bucket
//! admits.

use std::time::Duration;

use chrono::{DateTime, Utc};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::json as answer_json;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

/// Calls of the minute.
const CALLS: u32 = 1022;

const MINUTE: Duration = Duration::from_mins(1);

/// The bucket: tokens per minute, and its capacity.
const RPM: usize = 100;
const BURST: usize = 10;

/// The tolerance in a minute of [`CALLS`]: a token that comes too late for one call serves a later one.
const LOST: usize = 5;

/// Measures and returns the results; panics if too many or too few calls are admitted.
pub(crate) async fn measure(instance: &'static Instance) -> String {
    let merchant = Merchant::of(instance).await;
    let body = json!({"name": "a minute's", "rate_limit": {"rpm": RPM, "burst": BURST}});
    let made = merchant.post("/v1/spend_keys", &body).await.expect(201);
    let key = made["key"].as_str().expect("a key");
    let endpoint = instance.provider.endpoint(|_| answer_json(200, &json!({"usage": {"tokens": 1}})));
    let request = forward("GET", &endpoint.url).bearer(key);
    let gateways = [instance.gateway(0), instance.gateway(1)];
    assert_ne!(gateways[0], gateways[1], "two gateways");
    let begun = Instant::now();
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let request = request.clone();
            tokio::spawn(async move {
                sleep_until(begun + MINUTE * number / CALLS).await;
                request.send(gateways[number as usize % 2]).await.expect("the gateway answers").status
            })
        })
        .collect();
    let mut admitted = [0; 2];
    let mut refused = 0;
    for (number, call) in calls.into_iter().enumerate() {
        match call.await.expect("a call does not panic") {
            200 => admitted[number % 2] += 1,
            429 => refused += 1,
            other => panic!("answered {other}"),
        }
    }
    let took = begun.elapsed();
    let instants: Vec<DateTime<Utc>> = merchant
        .events()
        .await
        .into_iter()
        .filter(|event| event.kind == "request.opened")
        .filter_map(|event| event.body["spend_key"]["admitted_at"].as_str()?.parse().ok())
        .collect();
    let total = admitted[0] + admitted[1];
    assert_eq!(instants.len(), total, "the log has the admitted calls");
    let span = *instants.last().expect("calls were admitted") - instants[0];
    assert!(span.num_milliseconds() <= 60_000, "the calls took {span}: the machine is too busy for a result");
    let most = RPM + BURST;
    assert!((most - LOST..=most).contains(&total), "{total} admitted");
    format!(
        "## A minute of a rate limit\n\n\
        {CALLS} calls, evenly over {} s, to two gateways in turn, with a spend key of `rate_limit` {{rpm {RPM}, burst {BURST}}}.\n\n\
        | calls | took s | admitted | by each gateway | from first to last s | refused | may be admitted |\n\
        |---|---|---|---|---|---|---|\n\
        | {CALLS} | {:.1} | {total} | {}, {} | {:.1} | {refused} | at most {most} |\n",
        MINUTE.as_secs(),
        took.as_secs_f64(),
        admitted[0],
        admitted[1],
        span.to_std().expect("time moves forward").as_secs_f64(),
    )
}
