//! Repeated calls when a gateway dies: the first call's effect is kept, and there is no second.

use std::collections::HashSet;

use farthing_tests::client::{Connection, Request};
use farthing_tests::instance::Instance;
use farthing_tests::merchant::{Merchant, forward};
use farthing_tests::process::kill;
use farthing_tests::provider::{Gate, Step, json};
use farthing_tests::wait::{eventually, within};
use serde_json::json;

use crate::abandoned::SWEEP;
use crate::{instance, put_away, rounds, run};

const KEYS: usize = 60;

/// The `number`-th post of a round: a customer or a spend key, under its own idempotency key.
fn post(merchant: &Merchant, round: u32, number: usize) -> Request {
    let path = if number.is_multiple_of(2) { "/v1/customers" } else { "/v1/spend_keys" };
    let name = format!("number {number} of round {round}");
    let request = Request::new("POST", path).json(&json!({"name": name})).bearer(&merchant.secret_key);
    request.header("Idempotency-Key", name)
}

#[test]
fn a_gateway_that_dies_between_commit_and_response_leaves_one_effect_and_its_response_to_the_other_one() {
    run(async {
        let instance = instance().await;
        for round in 0..rounds() {
            // A merchant's rate limit is reached after some rounds.
            let merchant = Merchant::of(instance).await;
            one_death(instance, &merchant, round).await;
            let events = merchant.events().await;
            let created = |event: &&str| ["customer.created", "spend_key.created"].contains(event);
            let kinds = events.iter().map(|event| event.kind.as_str());
            assert_eq!(kinds.filter(created).count(), KEYS, "one effect for each key");
        }
        let report = instance.operate(&["log", "verify"]).await;
        assert_eq!(report["ok"], true, "{report}");
        put_away(instance).await;
    });
}

/// Sends posts to the first gateway, kills it before a response is read, and sends the same posts to the second one.
async fn one_death(instance: &'static Instance, merchant: &Merchant, round: u32) {
    let before = merchant.events().await.len();
    let (pid, other) = (instance.ready().pids.gateways[0], instance.gateway(1));
    let mut calls = Vec::new();
    for number in 0..KEYS {
        let mut call = Connection::open(instance.gateway(0)).await.unwrap();
        call.send(&post(merchant, round, number)).await.unwrap();
        calls.push(call);
    }
    eventually("the first facts are in the log", async || {
        (merchant.events().await.len() > before).then_some(())
    })
    .await;
    kill(pid);
    for (number, call) in calls.iter_mut().enumerate() {
        let first = call.response("POST").await.ok().filter(|answer| answer.complete);
        let again = post(merchant, round, number).send(other).await.unwrap();
        assert_eq!(again.status, 201, "{}", again.text());
        if let Some(first) = first {
            assert_eq!((first.status, &first.body), (again.status, &again.body));
        }
        let third = post(merchant, round, number).send(other).await.unwrap();
        assert_eq!((third.status, &third.body), (again.status, &again.body));
        assert_eq!(third.head.header("idempotency-replayed"), Some("true"));
    }
    within(crate::HEAL, "the gateway is back", async || {
        let ready = instance.try_ready()?;
        (ready.pids.gateways[0] != pid && farthing_tests::process::is_running(ready.pids.gateways[0]))
            .then_some(())
    })
    .await;
}

#[test]
fn a_forwarded_call_whose_gateway_died_is_never_sent_again() {
    run(async {
        let instance = instance().await;
        let merchant = Merchant::of(instance).await;
        merchant.credit_own("10").await;
        let gate = Gate::default();
        let waits = gate.clone();
        let endpoint = instance.provider.endpoint(move |_| {
            let mut steps = vec![Step::Wait(waits.clone())];
            steps.extend(json(200, &json!({})));
            steps
        });
        let request = |key: &str| {
            let request = forward("POST", &endpoint.url).json(&json!({"input": "hello"}));
            request.header("Idempotency-Key", key).bearer(&merchant.secret_key)
        };
        let other = instance.gateway(1);
        let mut calls = Vec::new();
        for key in ["a", "b", "c"] {
            let mut call = Connection::open(instance.gateway(0)).await.unwrap();
            call.send(&request(key)).await.unwrap();
            calls.push(call);
        }
        eventually("all are in flight", async || (endpoint.calls().len() == 3).then_some(())).await;
        kill(instance.ready().pids.gateways[0]);
        for key in ["a", "b", "c"] {
            request(key).send(other).await.unwrap().refused(409, "idempotency_in_progress");
        }
        let mut named = HashSet::new();
        for key in ["a", "b", "c"] {
            let ended = within(SWEEP, "the call is swept", async || {
                let answer = request(key).send(other).await.unwrap();
                let code = answer.json()["error"]["code"].clone();
                (code != "idempotency_in_progress").then_some(answer)
            })
            .await;
            ended.refused(409, "idempotency_completed");
            assert_eq!(merchant.failed_request(&ended.request_id()).await["reason"], "abandoned");
            named.insert(ended.request_id());
        }
        gate.open();
        assert_eq!((named.len(), endpoint.calls().len()), (3, 3));
        merchant.nothing_is_held().await;
        put_away(instance).await;
    });
}
