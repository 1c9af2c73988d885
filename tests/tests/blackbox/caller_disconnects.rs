//! Callers who disconnect: a meter may cancel their calls, a merchant's drain slots are bounded, and other merchants keep
//! theirs.

use std::sync::Arc;
use std::time::Duration;

use farthing_tests::client::Connection;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::provider::{Endpoint, Gate, Step, chunk, event_stream, head, last_chunk};
use farthing_tests::run;
use farthing_tests::wait::{eventually, within};
use serde_json::json;

/// Drain slots of one merchant in a gateway.
pub(crate) const PLACES: usize = 100;

/// The limit for a hundred calls to start, on a slow machine that also compiles.
pub(crate) const MANY: Duration = Duration::from_mins(1);

/// A response that reports 7 tokens, waits, and ends with a report of 9.
fn reports_twice(merchant: &Merchant, gate: &Gate) -> Endpoint {
    let gate = gate.clone();
    merchant.instance.provider.endpoint(move |_| {
        vec![
            event_stream(),
            chunk("data: {\"usage\":{\"tokens\":7}}\n\n"),
            Step::Wait(gate.clone()),
            chunk("data: {\"usage\":{\"tokens\":9}}\n\n"),
            last_chunk(),
        ]
    })
}

/// Starts a call and waits until its first report was read.
async fn begun(merchant: &Merchant, endpoint: &Endpoint) -> (Connection, String) {
    begun_with(merchant, &merchant.secret_key, endpoint).await
}

/// How many of the merchant's metered calls were read to the end, and how many in part.
async fn metered(merchant: &Merchant) -> (usize, usize) {
    let events = merchant.events().await;
    let metered: Vec<_> = events.iter().filter(|event| event.kind == "request.metered").collect();
    let partial = metered.iter().filter(|event| event.body["marks"] == json!(["partial"])).count();
    for event in &metered {
        let tokens = if event.body["marks"] == json!(["partial"]) { 7 } else { 9 };
        assert_eq!(event.body["usage"]["tokens"]["input"], tokens, "{}", event.body);
    }
    (metered.len() - partial, partial)
}

#[test]
fn disconnecting_callers_of_one_merchant_take_no_drain_slots_of_another() {
    run(async {
        let (crowd, other) = (Merchant::funded("10").await, Merchant::funded("10").await);
        let (crowds, others) = (Gate::default(), Gate::default());
        let endpoint = reports_twice(&crowd, &crowds);
        let mut calls = Vec::new();
        for _ in 0..PLACES + 3 {
            calls.push(begun(&crowd, &endpoint).await);
        }
        drop(calls);
        // Three get no drain slot: they are charged for the usage reported so far, and marked.
        within(MANY, "three end early", async || (metered(&crowd).await == (0, 3)).then_some(())).await;

        // All drain slots of the crowd are taken; the other merchant's call is still drained.
        let theirs = reports_twice(&other, &others);
        let (connection, id) = begun(&other, &theirs).await;
        drop(connection);
        others.open();
        let key = format!("{id}/metered");
        let whole = eventually("it is read to its end", async || other.log.event(&key).await).await;
        assert_eq!(whole.body["marks"], json!([]));
        assert_eq!(metered(&other).await, (1, 0));
        assert_eq!(metered(&crowd).await, (0, 3), "the other calls of the crowd keep their drain slots");

        crowds.open();
        within(MANY, "the crowd's calls are read to their end", async || {
            (metered(&crowd).await == (PLACES, 3)).then_some(())
        })
        .await;
        crowd.nothing_is_held().await;
        other.nothing_is_held().await;
    });
}

#[test]
fn a_call_without_a_drain_slot_or_reported_usage_ends_as_caller_gone() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let gate = Gate::default();
        let endpoint = reports_twice(&merchant, &gate);
        let waits = gate.clone();
        let silent = merchant.instance.provider.endpoint(move |_| {
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(waits.clone()), last_chunk()]
        });
        let mut calls = Vec::new();
        for _ in 0..=PLACES {
            calls.push(begun(&merchant, &endpoint).await);
        }
        drop(calls);
        within(MANY, "one ends early", async || (metered(&merchant).await == (0, 1)).then_some(())).await;
        let (connection, id) = begun(&merchant, &silent).await;
        drop(connection);
        let failed = merchant.failed_request(&id).await;
        assert_eq!((&failed["reason"], &failed["http_status"]), (&json!("caller_gone"), &json!(200)));
        gate.open();
        within(MANY, "the others are read to their end", async || {
            (metered(&merchant).await == (PLACES, 1)).then_some(())
        })
        .await;
        merchant.nothing_is_held().await;
    });
}

/// The same request with another credential.
async fn begun_with(merchant: &Merchant, credential: &str, endpoint: &Endpoint) -> (Connection, String) {
    let mut connection = Connection::open(merchant.gateway()).await.unwrap();
    connection.send(&forward("GET", &endpoint.url).bearer(credential)).await.unwrap();
    let head = connection.head("GET").await.unwrap();
    connection.read.piece().await.unwrap();
    (connection, head.header("x-service-request-id").unwrap().to_owned())
}

fn price(on_disconnect: &str) -> serde_json::Value {
    json!({"name": on_disconnect, "tier_type": "tokens_1m", "tiers": [{"start": 0, "rate": "1000000"}],
           "service_charge_payer": "merchant", "on_disconnect": on_disconnect})
}

#[test]
fn a_cancelling_meter_stops_the_provider_and_charges_the_usage_reported_so_far() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("100").await;
        let meter = merchant.meter(price("cancel")).await;
        let credential = merchant.billing(&customer, &meter);
        let gate = Gate::default();
        let held = gate.clone();
        let endpoint = merchant.instance.provider.endpoint(move |_| {
            let length = (1_u64 << 40).to_string();
            vec![
                head(200, &[("Content-Type", "text/event-stream"), ("Content-Length", &length)]),
                Step::Bytes(b"data: {\"usage\":{\"tokens\":7}}\n\n".to_vec()),
                Step::Wait(held.clone()),
                Step::Flood(1 << 40, Arc::default()),
            ]
        });
        let (connection, id) = begun_with(&merchant, &credential, &endpoint).await;
        drop(connection);
        // The provider did not continue, and the call is charged.
        let key = format!("{id}/metered");
        let charged = eventually("it is charged", async || merchant.log.event(&key).await).await.body;
        assert_eq!(
            (&charged["marks"], &charged["total_wallet_cost"]),
            (&json!(["partial"]), &json!("7.0000000000"))
        );
        gate.open();
        let call = endpoint.only_call();
        eventually("the provider is stopped", async || call.was_left().then_some(())).await;

        // Nothing was reported, so nothing is charged: during a response, and before it has begun.
        let gate = Gate::default();
        let (silent, mute) = (gate.clone(), gate.clone());
        let silent = merchant.instance.provider.endpoint(move |_| {
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(silent.clone()), last_chunk()]
        });
        let (connection, id) = begun_with(&merchant, &credential, &silent).await;
        drop(connection);
        let failed = merchant.failed_request(&id).await;
        assert_eq!((&failed["reason"], &failed["http_status"]), (&json!("caller_gone"), &json!(200)));
        let mute = merchant.instance.provider.endpoint(move |_| vec![Step::Wait(mute.clone())]);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send(&forward("GET", &mute.url).bearer(&credential)).await.unwrap();
        eventually("the call is under way", async || (mute.calls().len() == 1).then_some(())).await;
        drop(connection);
        let failures = async || {
            let events = merchant.events().await.into_iter();
            let failed: Vec<_> = events.filter(|event| event.kind == "request.failed").collect();
            (failed.len() == 2).then_some(failed)
        };
        let failed = eventually("it ends at once", failures).await;
        assert_eq!(failed[1].body["reason"], "caller_gone");
        gate.open();
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "93.0000000000");
    });
}

#[test]
fn a_response_that_is_left_before_it_reported_anything_counts_as_a_call() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("100").await;
        // The first call is free, and counts.
        let tiers = json!([{"start": 0, "rate": "0"}, {"start": 1, "rate": "2"}]);
        let per_call = json!({"name": "per call", "tier_type": "requests", "tiers": tiers,
                              "service_charge_payer": "merchant", "on_disconnect": "cancel"});
        let meter = merchant.meter(per_call).await;
        let credential = merchant.billing(&customer, &meter);
        let gate = Gate::default();
        let (waits, mute) = (gate.clone(), gate.clone());
        let stream = merchant.instance.provider.endpoint(move |_| {
            vec![event_stream(), chunk("data: {}\n\n"), Step::Wait(waits.clone()), last_chunk()]
        });
        for cost in ["0.0000000000", "2.0000000000"] {
            let (connection, id) = begun_with(&merchant, &credential, &stream).await;
            drop(connection);
            let key = format!("{id}/metered");
            let charged = eventually("it is charged", async || merchant.log.event(&key).await).await.body;
            assert_eq!(charged["marks"], json!(["usage_missing", "partial"]));
            assert_eq!(
                (&charged["total_wallet_cost"], &charged["units"]),
                (&json!(cost), &json!("1")),
                "{charged}"
            );
        }

        // Without a response there is nothing to charge.
        let mute = merchant.instance.provider.endpoint(move |_| vec![Step::Wait(mute.clone())]);
        let mut connection = Connection::open(merchant.gateway()).await.unwrap();
        connection.send(&forward("GET", &mute.url).bearer(&credential)).await.unwrap();
        eventually("the call is under way", async || (mute.calls().len() == 1).then_some(())).await;
        drop(connection);
        let failure =
            async || merchant.events().await.into_iter().find(|event| event.kind == "request.failed");
        let failed = eventually("it ends", failure).await;
        assert_eq!(failed.body["reason"], "caller_gone");
        gate.open();
        merchant.nothing_is_held().await;
        assert_eq!(merchant.balance(&customer).await, "98.0000000000");
    });
}

#[test]
fn the_meter_as_of_admission_decides_whether_a_call_is_cancelled() {
    run(async {
        let merchant = Merchant::funded("10").await;
        let customer = merchant.customer("100").await;
        let mut fields = price("complete");
        fields.as_object_mut().unwrap().remove("on_disconnect");
        let meter = merchant.meter(fields).await;
        let path = format!("/v1/meters/{}", meter.id);
        assert_eq!(merchant.get(&path).await.expect(200)["on_disconnect"], "complete", "the default");
        let gate = Gate::default();
        let endpoint = reports_twice(&merchant, &gate);
        let (connection, id) = begun_with(&merchant, &merchant.billing(&customer, &meter), &endpoint).await;
        let patched = merchant.patch(&path, &json!({"on_disconnect": "cancel"})).await.expect(200);
        assert_eq!(patched["on_disconnect"], "cancel");
        assert_eq!(merchant.get(&path).await.expect(200)["on_disconnect"], "cancel");
        drop(connection);
        gate.open();
        let key = format!("{id}/metered");
        let charged = eventually("it is read to its end", async || merchant.log.event(&key).await).await.body;
        assert_eq!((&charged["marks"], &charged["total_wallet_cost"]), (&json!([]), &json!("9.0000000000")));
        let bad = merchant.patch(&path, &json!({"on_disconnect": "hang up"})).await;
        assert_eq!(bad.refused(400, "validation_error")["issues"][0]["path"], json!(["on_disconnect"]));
        merchant.nothing_is_held().await;
    });
}
